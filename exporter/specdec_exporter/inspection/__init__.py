"""One look at a log, a running predictor or saved responses, and what to make of it. The commands use every module."""
