"""Acceptance request by request, from saved responses of vLLM 0.29 and later."""
