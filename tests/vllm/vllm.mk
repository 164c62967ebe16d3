# Tests against the real vLLM, in a venv of its own (docs/testing-with-vllm.md).
#   make test-vllm                                    the newest release we hold pins for
#   make test-vllm VLLM="0.21.0 0.25.1 0.32.0"        all of them

PYTHON ?= .venv/bin/python
VLLM ?= 0.32.0

.PHONY: test-vllm
test-vllm:
	set -e; for release in $(VLLM); do \
		python="$$($(PYTHON) tests/vllm/install.py $$release)"; \
		SPECDEC_VLLM_PYTHON="$$python" $(PYTHON) -m pytest -p no:cacheprovider tests/vllm; \
	done
