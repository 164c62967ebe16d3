# What a release consists of, and what checks the repository as a project (docs/releasing.md). Included by the Makefile.

# An environment of their own: what builds and checks a release shall not be part of it.
RELEASE := $(TOOLS)/release-$(shell cksum < tools/release/requirements.lock | cut -d' ' -f1)
# Everything built from a commit has the commit's time, so everybody builds the same bytes. Without git, hatchling's own.
EPOCH = $(shell git log -1 --format=%ct 2>/dev/null || echo 1580601600)
COMMIT = $(shell git rev-parse HEAD 2>/dev/null)
VERSION = $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' exporter/specdec_exporter/__init__.py)

.PHONY: dist lint-project lock-release
tools: $(RELEASE)/.installed

$(RELEASE)/.installed: tools/release/requirements.lock
	rm -rf $(@D)
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@mkdir -p $(TOOLS)/bin
	ln -sf $(@D)/bin/zizmor $(@D)/bin/check-jsonschema $(TOOLS)/bin/
	@touch $@

dist: $(RELEASE)/.installed ## Build wheel and sdist into dist/, byte by byte the same from the same commit
	rm -rf dist/specdec_exporter-*
	printf %s '$(COMMIT)' > exporter/specdec_exporter/REVISION
	trap 'rm -f exporter/specdec_exporter/REVISION' EXIT; \
	SOURCE_DATE_EPOCH=$(EPOCH) $(RELEASE)/bin/python -m build --no-isolation --outdir dist . >/dev/null

# The exporter and all it needs, as pip unpacks it. Compiled dependencies fit one Python and machine: those that made it.
PACKAGES := build/packages
.PHONY: packages
packages: dist
	rm -rf $(PACKAGES)
	$(RELEASE)/bin/pip install --quiet --disable-pip-version-check --no-compile --require-hashes --target $(PACKAGES) -r requirements.lock
	rm -rf $(PACKAGES)/bin
	$(RELEASE)/bin/pip install --quiet --disable-pip-version-check --no-compile --no-deps --no-index --find-links dist --target $(PACKAGES) specdec-exporter==$(VERSION)
	rm -rf $(PACKAGES)/bin

lint-project: $(RELEASE)/.installed ## zizmor over the workflows: unpinned actions, wide permissions, injected templates
	$(TOOLS)/bin/zizmor --offline --no-progress .github

lock-release: $(VENV)/.dev ## Pin the newest tools that make and audit a release
	for one in release audit; do \
	    $(BIN)/pip-compile --quiet --strip-extras --generate-hashes --no-emit-index-url --no-emit-find-links --no-header --allow-unsafe --upgrade -o tools/$$one/requirements.lock tools/$$one/requirements.in || exit; \
	done
