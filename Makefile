# Two commands do all the set-up: `make demo` and `make test`. Everything else is for developers; `make help` lists it.
# `make check` is for every edit; `make test`, the demo, `make test-tools` and `make test-vllm` are .ci/run; what
# takes too long for it is `make ci-nightly`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TOOLS := $(CURDIR)/.tools
export PATH := $(TOOLS)/bin:$(PATH)
# Without bytecode every worker compiles all tests again, which takes each of them 6 s.
unexport PYTHONDONTWRITEBYTECODE
.DEFAULT_GOAL := help
.PHONY: help demo check test tests test-tools test-nightly ci-nightly lint format render schema bench bench-ruler bench-alerts bench-compare fuzz soak soak-memory lock clean

help: ## This list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; set PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || tests/debian.sh python3-venv
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.runtime: requirements.lock pyproject.toml $(VENV)/.created
	@echo "Installing the exporter and its packages into $(VENV)"
	@$(BIN)/pip install --quiet --disable-pip-version-check -r requirements.lock
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

$(VENV)/.dev: requirements-dev.lock $(VENV)/.runtime
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements-dev.lock
	@touch $@

$(TOOLS)/.test: tests/debian.sh
	tests/debian.sh promtool prometheus prometheus-alertmanager vmagent vmalert jsonnet chromedriver logrotate
	@mkdir -p $(TOOLS) && touch $@

# The demo renders its rules when it starts, with the jsonnet of the developers' lock file and none of its other packages.
$(VENV)/.demo: requirements-dev.lock $(VENV)/.runtime
	@awk '/^[^ #]/ {wanted = /^rjsonnet==/} wanted' requirements-dev.lock > $(VENV)/demo.lock
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r $(VENV)/demo.lock
	@touch $@

demo: $(VENV)/.demo ## Simulated predictors, exporter, Prometheus, Alertmanager, pages; SECONDS=20 ends by itself
	@tests/debian.sh prometheus prometheus-alertmanager
	@PYTHONPATH=deploy $(BIN)/python -m demo $(if $(filter command line,$(origin SECONDS)),--seconds $(SECONDS))

# Grafana's types, to check the dashboards with.
SCHEMA := tests/dashboards/schema
$(TOOLS)/schema/.installed: $(SCHEMA)/package.json $(SCHEMA)/package-lock.json
	@mkdir -p $(@D) && cp $^ $(@D)
	npm ci --prefix $(@D) --ignore-scripts --no-audit --no-fund --silent
	@touch $@

schema: $(TOOLS)/schema/.installed ## Install Grafana's types, by which the dashboards are checked; needs npm

# One worker more than there are cores: some tests wait for servers in real time.
WORKERS ?= $(shell $(BIN)/python -c 'import os; print(os.cpu_count() + 1)')
# `worksteal`: tests run in the order of their files, so that each worker makes the fixtures of few modules.
PYTEST = $(BIN)/pytest --numprocesses $(WORKERS) --dist worksteal

# The linters take one core for a minute where mypy knows nothing yet, so they run beside the tests.
check test: $(VENV)/.dev
	@$(MAKE) --no-print-directory --jobs=2 lint tests MARKED='$(MARKED)'

check: MARKED = not debian and not slow and not field and not nightly
check: ## Lint, types, and the tests that need nothing but Python: for every edit

test: MARKED = not slow and not field and not nightly
test: $(TOOLS)/.test ## Lint, types, and the tests that need no vLLM and no Go and take minutes; installs what they need

tests: $(VENV)/.dev
	$(PYTEST) -m '$(MARKED)'

test-tools: $(VENV)/.dev $(TOOLS)/.test tools schema ## Slow tests, linters of the field, current releases of Prometheus and Alertmanager, log rotators; needs Go and npm
	$(PYTEST) -m '(slow or field) and not nightly'

# Real rotators; after the other packages, for two runs of apt-get disturb each other.
test-tools: $(TOOLS)/.rotators
$(TOOLS)/.rotators: tests/debian.sh | $(TOOLS)/.test
	tests/debian.sh svlogd multilog s6-log
	@touch $@

test-nightly: $(VENV)/.dev $(TOOLS)/.test tools schema ## The tests marked nightly, which take too long for `make test`; needs Go and npm
	$(PYTEST) -m nightly

ci-nightly: test-nightly test-image test-cluster test-fleet ## What takes too long for .ci/run: slow tests, the image, a real Kubernetes API, other engines

lint: $(VENV)/.dev ## ruff, ruff format, mypy --strict, import-linter, sizes of modules and functions
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo --no-cache
	$(BIN)/python tools/sizes.py

format: $(VENV)/.dev ## Let ruff put the code in shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

render: $(VENV)/.dev ## Render rules, dashboards and Alertmanager files anew after a change of their jsonnet
	$(BIN)/python tools/render.py

# What tests/ and lab/ import, for the programs of the laboratory.
LABORATORY = PYTHONPATH=lab:tests:deploy:tools $(BIN)/python -m

bench: $(VENV)/.dev ## The budgets, each as a ratio measured in one run; ARGS=--quick for a fifth of the log
	@tests/debian.sh mtail
	$(LABORATORY) bench.run $(ARGS)

bench-alerts: $(VENV)/.dev ## How good the alerts are, over labelled traces; ARGS=--quick for a fifth of them
	@tests/debian.sh promtool prometheus
	$(LABORATORY) bench.alert_quality $(ARGS)

bench-compare: $(VENV)/.dev ## How often compare is wrong, over simulated recordings; ARGS=--quick for a tenth of them
	$(LABORATORY) bench.compare_quality $(ARGS)

bench-ruler: $(VENV)/.dev tools ## What the rules cost a real Prometheus, by services; ARGS=--quick for up to 1,000
	$(LABORATORY) bench.ruler_cost $(ARGS)

soak-memory: $(VENV)/.dev ## Hostile input against one exporter of 128 MiB; ARGS=--record writes docs/evidence/reliability.md
	$(LABORATORY) soak.memory $(ARGS)

MINUTES ?= 60
fuzz: $(VENV)/.dev ## Fuzz every parser for MINUTES on each core; ARGS=--record writes docs/evidence/reliability.md
	$(LABORATORY) fuzz.run --minutes $(MINUTES) $(ARGS)

soak: $(VENV)/.dev ## Scrapes and log of weeks in an hour; MINUTES=10 for a sixth of them
	$(LABORATORY) soak.soak --minutes $(or $(MINUTES),60) $(ARGS)

# pip-compile knows no dependency groups, so it reads this one from its input.
DEV_GROUP = $(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["dependency-groups"]["dev"], sep="\n")'
lock: $(VENV)/.dev ## Pin the newest dependencies that pyproject.toml allows
	$(BIN)/pip-compile --quiet --strip-extras --generate-hashes --no-emit-index-url --no-emit-find-links --no-header --upgrade -o requirements.lock pyproject.toml
	$(BIN)/pip-compile --quiet --strip-extras --generate-hashes --no-emit-index-url --no-emit-find-links --no-header --allow-unsafe --upgrade --only-build-deps --build-deps-for wheel -o requirements-build.lock pyproject.toml
	$(DEV_GROUP) | $(BIN)/pip-compile --quiet --strip-extras --generate-hashes --no-emit-index-url --no-emit-find-links --no-header --allow-unsafe --upgrade -c requirements.lock -o requirements-dev.lock pyproject.toml -

clean: ## Remove what make made
	rm -rf $(VENV) $(TOOLS) .bench build dist

include make/*.mk
