"""A simulated vLLM predictor for demos and tests: an OpenAI API, ``/metrics`` and a log in vLLM's shapes.

Nothing here is vLLM and no model runs. :class:`~.engine.Engine` is the model (simulated time, seeded, no I/O),
:mod:`.exposition` and :mod:`.log` render what it did, :mod:`.server` puts it behind HTTP.
"""
