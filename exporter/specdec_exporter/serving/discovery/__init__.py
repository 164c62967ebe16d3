"""Predictors that come and go: who finds them (Kubernetes, files), and what is found (targets).

``discovery`` runs the providers and tells the runtime which targets there are; ``families`` says how that goes.
"""
