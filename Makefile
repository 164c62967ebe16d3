# Two commands do all the set-up: `make demo` and `make test`. Everything else is for developers; `make help` lists it.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TOOLS := $(CURDIR)/.tools
export PATH := $(TOOLS)/bin:$(PATH)
.DEFAULT_GOAL := help
.PHONY: help demo test lint format render pictures schema bench bench-ruler bench-alerts lock clean

help: ## This list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; set PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || tests/debian.sh python3-venv
	$(PYTHON) -m venv $(VENV)
	@touch $@

FASTLINE := exporter/specdec_exporter/predictor/_fastline.c
$(VENV)/.runtime: requirements.lock pyproject.toml tools/fastline.py $(FASTLINE) $(VENV)/.created
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

# Tests and benchmarks are for the compiled module; the rest does without it where there is no compiler.
compiled = $(BIN)/python -c 'import specdec_exporter.predictor._fastline'
$(VENV)/.compiled: $(VENV)/.runtime
	@$(compiled) 2>/dev/null || { tests/debian.sh compiler && $(BIN)/pip install --quiet --disable-pip-version-check --no-deps --editable .; }
	@$(compiled)
	@touch $@

$(VENV)/.dev: requirements-dev.lock $(VENV)/.compiled
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements-dev.lock
	@touch $@

$(TOOLS)/.test: tests/debian.sh
	tests/debian.sh promtool prometheus prometheus-alertmanager vmalert chromium
	@mkdir -p $(TOOLS) && touch $@

# The demo renders its rules when it starts, with the jsonnet of the developers' lock file and none of its other packages.
$(VENV)/.demo: requirements-dev.lock $(VENV)/.runtime
	awk '/^[^ #]/ {wanted = /^jsonnet==/} wanted' requirements-dev.lock > $(VENV)/demo.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r $(VENV)/demo.lock
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

ifneq ($(shell command -v npm),)
schema: $(TOOLS)/schema/.installed ## Install Grafana's types, by which the dashboards are checked; without npm, say so
else
schema:
	@echo "make schema: no 'npm' command here, so the dashboards are not checked by Grafana's types" >&2
endif

test: lint $(TOOLS)/.test tools schema ## Lint, types and all tests that need no vLLM; installs what they need
	$(BIN)/pytest

lint: $(VENV)/.dev ## ruff, ruff format, mypy --strict; the C compiler's warnings
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(CC) -std=c11 -Wall -Wextra -Werror -fsyntax-only -I$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("include"))') $(FASTLINE)

format: $(VENV)/.dev ## Let ruff put the code in shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

render: $(VENV)/.dev ## Render rules, dashboards and Alertmanager files anew after a change of their jsonnet
	$(BIN)/python tools/render.py

pictures: $(VENV)/.dev $(TOOLS)/.test tools ## Draw previews of the dashboards into docs/
	$(BIN)/python tests/dashboards/pictures.py

bench: $(VENV)/.dev ## The budgets, each as a ratio measured in one run
	@tests/debian.sh mtail
	$(BIN)/python tests/bench/run.py

bench-alerts: $(VENV)/.dev ## How good the alerts are, over labelled traces; ARGS=--quick for a tenth of them
	@tests/debian.sh promtool prometheus
	$(BIN)/python tests/bench/alert_quality.py $(ARGS)

bench-ruler: $(VENV)/.dev tools ## What the rules cost a real Prometheus, by services; ARGS=--quick for up to 1,000
	$(BIN)/python tests/bench/ruler_cost.py $(ARGS)

lock: $(VENV)/.dev ## Pin the newest dependencies that pyproject.toml allows
	$(BIN)/pip-compile --quiet --strip-extras --generate-hashes --no-emit-index-url --no-emit-find-links --no-header --upgrade -o requirements.lock pyproject.toml
	$(BIN)/pip-compile --quiet --strip-extras --generate-hashes --no-emit-index-url --no-emit-find-links --no-header --allow-unsafe --upgrade --extra dev -c requirements.lock -o requirements-dev.lock pyproject.toml

clean: ## Remove what make made
	rm -rf $(VENV) $(TOOLS) .bench

include tests/vllm/vllm.mk
include tools/tools.mk
