"""One look at a log, a running predictor or saved responses, and the findings. Only :mod:`livecheck` reads anything."""
