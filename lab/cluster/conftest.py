"""The control plane and what runs in it. Each starts once for the whole run, and only if a test wants it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from cluster import definitions
from cluster import kserve as kserve_install
from cluster import operator as operator_install
from cluster.controlplane import ControlPlane
from cluster.controlplane import control_plane as run_control_plane
from report import EVIDENCE, Transcript

_numbers = itertools.count()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record", action="store_true", help="write the tables of docs/evidence/cluster.md")


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """API server and controllers, with all definitions: Deployments make pods, which stay Pending."""
    with run_control_plane(tmp_path_factory.mktemp("control-plane"), definitions.data()) as plane:
        yield plane


@pytest.fixture(scope="session")
def transcript(request: pytest.FixtureRequest) -> Iterator[Transcript]:
    """What this run saw; written at its end if it is asked to."""
    seen = Transcript()
    yield seen
    if request.config.getoption("--record"):
        seen.write(EVIDENCE / "cluster.md")


@pytest.fixture(scope="session")
def kserve(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """The control plane with KServe's webhooks, runtimes and controller."""
    with kserve_install.installed(control_plane):
        yield control_plane


@pytest.fixture(scope="session")
def llm(kserve: ControlPlane) -> Iterator[ControlPlane]:
    """The same with KServe's controller of LLMInferenceServices, and its presets."""
    with kserve_install.llm_installed(kserve):
        yield kserve


@pytest.fixture(scope="session")
def operator(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """The control plane with the Prometheus operator."""
    with operator_install.installed(control_plane):
        yield control_plane


@pytest.fixture
def new_namespace(control_plane: ControlPlane) -> Callable[..., str]:
    """Makes a namespace of its own, with labels if any are given."""

    def make(**labels: str) -> str:
        return control_plane.make_namespace(f"test-{next(_numbers)}", **labels)

    return make


@pytest.fixture
def namespace(new_namespace: Callable[..., str]) -> str:
    """A namespace of its own."""
    return new_namespace()
