"""What the predictor's account may do: read logs of its namespace, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from cluster import shipped
from cluster.api import RefusedError, where
from cluster.controlplane import ControlPlane
from cluster.test_kserve import PREDICTOR

ACCOUNT = "specdec-predictor"


@pytest.fixture
def prepared(kserve: ControlPlane, namespace: str) -> str:
    """A namespace with the predictor's account."""
    kserve.apply(shipped.into(namespace, shipped.objects(PREDICTOR)))
    return namespace


def rights(plane: ControlPlane, namespace: str, account: str) -> list[Any]:
    """Everything that an account may do in its namespace, as the API server tells the account itself."""
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": namespace},
    }
    path = where("authorization.k8s.io/v1/selfsubjectrulesreviews")
    found: list[Any] = plane.as_account(namespace, account).request("POST", path, body)["status"]["resourceRules"]
    return found


def test_it_has_one_right_more_than_every_account(kserve: ControlPlane, prepared: str) -> None:
    usual = rights(kserve, prepared, "default")

    more = [right for right in rights(kserve, prepared, ACCOUNT) if right not in usual]

    assert more == [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods/log"]}]


def test_it_reads_no_log_of_another_namespace(kserve: ControlPlane, prepared: str) -> None:
    account = kserve.as_account(prepared, ACCOUNT)

    with pytest.raises(RefusedError, match=r'403 .*cannot get resource "pods/log".* in the namespace "default"'):
        account.request("GET", where("v1/pods", "default", "any", "log"))
