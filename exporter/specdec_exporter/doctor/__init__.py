"""What vLLM does in silence with the arguments that it gets, and why a start failed. ``serve`` never imports it.

:mod:`.diagnosis` judges; the others read a manifest and tokenizers. ``facts.yaml`` has what only ``doctor`` tells.
"""
