"""Baselines: what a predictor did while it was recorded. Their file, how they are recorded, how they are served."""
