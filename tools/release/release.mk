# What a release consists of, and what checks the repository as a project (docs/releasing.md). Included by the Makefile.

# An environment of their own: what builds and checks a release shall not be part of it.
RELEASE := $(TOOLS)/release-$(shell cksum < tools/release/requirements.lock | cut -d' ' -f1)
# Everything built from a commit has the commit's time, so everybody builds the same bytes. Without git, hatchling's own.
EPOCH = $(shell git log -1 --format=%ct 2>/dev/null || echo 1580601600)
VERSION = $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' exporter/specdec_exporter/__init__.py)
WHEEL = dist/specdec_exporter-$(VERSION)-py3-none-any.whl

.PHONY: dist sbom single-file lint-project lock-release
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
	SOURCE_DATE_EPOCH=$(EPOCH) $(RELEASE)/bin/python -m build --no-isolation --outdir dist . >/dev/null

sbom: $(RELEASE)/.installed $(VENV)/.runtime ## Write dist/sbom.cdx.json: what requirements.lock installs, in CycloneDX
	@mkdir -p dist
	$(BIN)/python tools/release/sbom.py > dist/sbom.cdx.json
	$(RELEASE)/bin/python -c 'import sys; from cyclonedx.schema import SchemaVersion; from cyclonedx.validation.json import JsonStrictValidator; sys.exit(JsonStrictValidator(SchemaVersion.V1_6).validate_str(sys.stdin.read()))' < dist/sbom.cdx.json

# The exporter and all it needs, as pip unpacks it. Compiled dependencies fit one Python and machine: those that made it.
PACKAGES := build/packages
.PHONY: packages
packages: dist
	rm -rf $(PACKAGES)
	$(RELEASE)/bin/pip install --quiet --disable-pip-version-check --no-compile --require-hashes --target $(PACKAGES) -r requirements.lock
	rm -rf $(PACKAGES)/bin
	$(RELEASE)/bin/pip install --quiet --disable-pip-version-check --no-compile --no-deps --no-index --find-links dist --target $(PACKAGES) specdec-exporter==$(VERSION)
	rm -rf $(PACKAGES)/bin

# At its first start it unpacks itself into ~/.shiv, or below $$SHIV_ROOT.
single-file: packages ## Build the exporter and its dependencies as one executable file in dist/
	SOURCE_DATE_EPOCH=$(EPOCH) $(RELEASE)/bin/python -m shiv --site-packages $(PACKAGES) --reproducible --compressed \
		--python "/usr/bin/env $$($(RELEASE)/bin/python -c 'import sys; print("python%d.%d" % sys.version_info[:2])')" \
		--entry-point specdec_exporter.commands.cli:main \
		--output-file dist/specdec-exporter-$(VERSION)-$$($(RELEASE)/bin/python -c 'import platform, sys; print("py%d%d" % sys.version_info[:2] + "-" + platform.machine())').pyz

lint-project: $(RELEASE)/.installed ## zizmor over the workflows: unpinned actions, wide permissions, injected templates
	$(TOOLS)/bin/zizmor --offline --no-progress .github

lock-release: $(VENV)/.dev ## Pin the newest tools that make a release
	$(BIN)/pip-compile --quiet --strip-extras --generate-hashes --no-emit-index-url --no-emit-find-links --no-header --allow-unsafe --upgrade -o tools/release/requirements.lock tools/release/requirements.in
