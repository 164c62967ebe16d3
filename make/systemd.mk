# Installs the exporter on a machine without containers (deploy/systemd/README.md). Included by the Makefile.

prefix ?= /usr
LIB = $(prefix)/lib/specdec-exporter
# The Python itself, not the environment that pip runs in: what is installed outlives the checkout.
BASE_PYTHON = $(shell $(RELEASE)/bin/python -c 'import os, sys; print(os.path.realpath(sys._base_executable))')

.PHONY: install
install: packages ## Install command, unit and settings below DESTDIR, as a Debian package would
	rm -rf $(DESTDIR)$(LIB)
	install -d $(DESTDIR)$(LIB) $(DESTDIR)$(prefix)/bin
	cp -RT $(PACKAGES) $(DESTDIR)$(LIB)
	$(RELEASE)/bin/python -m compileall -q --invalidation-mode unchecked-hash $(if $(DESTDIR),-s $(DESTDIR) -p /) $(DESTDIR)$(LIB)
	sed 's,@PYTHON@,$(BASE_PYTHON),; s,@LIB@,$(LIB),' deploy/systemd/specdec-exporter.in > $(DESTDIR)$(prefix)/bin/specdec-exporter
	chmod 755 $(DESTDIR)$(prefix)/bin/specdec-exporter
	install -D -m 644 -t $(DESTDIR)$(prefix)/lib/systemd/system deploy/systemd/specdec-exporter.service
	test -e $(DESTDIR)/etc/default/specdec-exporter || install -D -m 644 deploy/systemd/specdec-exporter.default $(DESTDIR)/etc/default/specdec-exporter

test-tools: $(TOOLS)/.systemd
# Not at the same time as the other packages: one apt-get at a time.
$(TOOLS)/.systemd: tests/debian.sh | $(TOOLS)/.rotators
	tests/debian.sh systemd-analyze
	@mkdir -p $(TOOLS) && touch $@
