"""A simulated vLLM predictor for the demo and for tests: ``/metrics``, ``/version``, ``/v1/models`` and a log.

No vLLM and no model run. :mod:`engine` simulates (simulated time, seeded, no I/O), :mod:`exposition` and :mod:`log`
render its state, and :mod:`server` serves them. Nothing here imports specdec_exporter: vLLM's names are
spelled a second time, so that a mistake in one place shows.
"""
