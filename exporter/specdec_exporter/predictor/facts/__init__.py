"""What is known of vLLM's releases, methods and arguments: ``*.yaml`` beside this file, one file per kind of fact.

A fact is data: a range of releases, a condition on a :class:`~.deployment.Deployment`, what is found and what to do.
:mod:`.known` reads and evaluates them. The page, the API, ``check``, ``analyze`` and ``doctor`` show the same facts.
"""
