"""One look at a log, a running predictor or saved responses, and the findings. Every module is public; no I/O."""
