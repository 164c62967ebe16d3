# Tests beside the real vLLM (docs/evidence/testing-with-vllm.md). Included by the Makefile.

VLLM ?= 0.32.0
# Where the venv of a release is; installs it if need be.
VLLM_PYTHON = $$($(BIN)/python lab/vllm/install.py $(1))

.PHONY: test-vllm test-vllm-nightly test-e2e
test-vllm: $(VENV)/.dev ## The exporter beside real vLLM servers; VLLM="0.21.0 0.25.1 0.32.0" for every release
	@tests/debian.sh promtool
	set -e; for release in $(VLLM); do \
		python="$(call VLLM_PYTHON,$$release)"; \
		SPECDEC_VLLM_PYTHON="$$python" $(BIN)/pytest -p no:cacheprovider -m '$(or $(MARKED),not nightly)' lab/vllm; \
	done

test-vllm-nightly: MARKED = nightly
test-vllm-nightly: test-vllm ## What is measured beside real servers: comparisons, the speed-up

ci-nightly: test-vllm-nightly test-e2e

test-e2e: $(VENV)/.dev ## From a real vLLM's dying draft head to a page: exporter, Prometheus, Alertmanager
	@tests/debian.sh prometheus prometheus-alertmanager
	python="$(call VLLM_PYTHON,$(lastword $(VLLM)))"; \
	SPECDEC_VLLM_PYTHON="$$python" $(BIN)/pytest -p no:cacheprovider lab/e2e
