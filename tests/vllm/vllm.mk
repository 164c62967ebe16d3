# Tests beside the real vLLM (docs/testing-with-vllm.md). Included by the Makefile.

VLLM ?= 0.32.0

.PHONY: test-vllm
test-vllm: $(VENV)/.dev ## The exporter beside real vLLM servers; VLLM="0.21.0 0.25.1 0.32.0" for every release
	set -e; for release in $(VLLM); do \
		python="$$($(BIN)/python tests/vllm/install.py $$release)"; \
		SPECDEC_VLLM_PYTHON="$$python" $(BIN)/pytest -p no:cacheprovider tests/vllm; \
	done
