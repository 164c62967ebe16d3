"""Baselines: what a predictor did over a span of time. Their file, recording, and fit to a running predictor."""
