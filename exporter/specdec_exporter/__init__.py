"""Metrics, verdicts and a status page for vLLM's speculative decoding."""

__version__ = "0.1.0"
