# What a release consists of, and what checks the repository as a project (docs/releasing.md). Included by the Makefile.

# An environment of their own: what builds and checks a release shall not be part of it.
RELEASE := $(TOOLS)/release-$(shell cksum < tools/release/requirements.lock | cut -d' ' -f1)
# Everything built from a commit has the commit's time, so everybody builds the same bytes. Without git, hatchling's own.
EPOCH = $(shell git log -1 --format=%ct 2>/dev/null || echo 1580601600)
COMMIT = $(shell git rev-parse HEAD 2>/dev/null)
VERSION = $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' exporter/specdec_exporter/__init__.py)

.PHONY: dist image chart release lint-project lock-release
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

# The workflow pushes what this builds (IMAGE_OUTPUT). The base is named by its digest, because a tag can move.
IMAGE ?= specdec-exporter
IMAGE_OUTPUT ?= type=oci,dest=dist/specdec-exporter-$(VERSION).oci.tar,rewrite-timestamp=true
IMAGE_METADATA ?= build/image.json
image: ## Build the image for both machines into dist/; needs docker with buildx
	@mkdir -p dist build
	@grep -q '^ARG PYTHON_IMAGE=.*@sha256:' Dockerfile
	docker buildx build . \
	    --platform linux/amd64,linux/arm64 \
	    --build-arg VERSION=$(VERSION) \
	    --build-arg REVISION=$(shell git rev-parse HEAD) \
	    --build-arg CREATED=$(shell git log -1 --format=%cI) \
	    --build-arg SOURCE_DATE_EPOCH=$(EPOCH) \
	    --sbom=true --provenance=mode=max \
	    --tag $(IMAGE):$(VERSION) \
	    --metadata-file $(IMAGE_METADATA) \
	    --output $(IMAGE_OUTPUT)

chart: ## Pack the Helm chart into dist/; needs Go
	rm -f dist/specdec-exporter-*.tgz
	helm package --destination dist --version $(VERSION) --app-version $(VERSION) deploy/helm/specdec-exporter

release: $(VENV)/.dev dist chart ## Build all that a release consists of, and print what a person must still do
	$(BIN)/python tools/render.py --check
	@if docker buildx version >/dev/null 2>&1; then $(MAKE) --no-print-directory image; else echo "No docker with buildx: the image is left to the workflow"; fi
	@PYTHONPATH=tools $(BIN)/python -m release.remaining $(VERSION)

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
