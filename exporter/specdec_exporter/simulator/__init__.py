"""A simulated vLLM predictor for demos and tests: an OpenAI API, ``/metrics`` and a log in vLLM's shapes.

No vLLM and no model run. The command uses :mod:`server`, :mod:`settings` and :mod:`scenario`; :mod:`engine` simulates
(simulated time, seeded, no I/O), :mod:`exposition` and :mod:`log` render its state.
"""
