"""Tests against the real vLLM. Not vLLM itself: that lives in a venv of its own, and nothing here imports it."""
