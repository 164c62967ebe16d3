"""What is known of vLLM's releases and of failed starts, as data: ``*.yaml`` beside the modules that read them.

:mod:`.known` evaluates facts about a :class:`~.deployment.Deployment`. The page, the API, ``check``, ``analyze`` and
``doctor`` show the same facts about running servers. :mod:`.speculativewords` knows which keys, methods and flags of
speculation each release takes.
"""
