"""The control plane works as the tests assume."""

from __future__ import annotations

import pytest

from cluster.api import RefusedError
from cluster.controlplane import ControlPlane

DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: web, image: web}]
"""


def test_a_deployment_makes_a_pod_that_runs_when_we_say_so(control_plane: ControlPlane, namespace: str) -> None:
    api = control_plane.api

    assert control_plane.apply(DEPLOYMENT, f"--namespace={namespace}") == ["deployment.apps/web serverside-applied"]
    (pod,) = api.until("v1/pods", namespace, list)
    control_plane.run_pod(namespace, pod["metadata"]["name"], control_plane.address())

    assert api.wait("apps/v1/deployments", namespace, "web", lambda one: one["status"].get("readyReplicas") == 1)


def test_what_an_account_may_not_do_is_refused(control_plane: ControlPlane, namespace: str) -> None:
    account = control_plane.as_account(namespace, "default")

    with pytest.raises(RefusedError, match=f"serviceaccount:{namespace}:default"):
        account.items("v1/pods", namespace)
