"""Real servers, shared by all tests of a session: each takes half a minute to start."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from vllm.checkpoints import write_checkpoints
from vllm.language import Language, build_language
from vllm.server import Installation


@pytest.fixture(scope="session")
def installation() -> Installation:
    """The vLLM under test."""
    python = os.environ.get("SPECDEC_VLLM_PYTHON")
    if not python:
        pytest.exit("these tests need a vLLM: run `make test-vllm`", returncode=pytest.ExitCode.USAGE_ERROR)
    return Installation(Path(python))


@pytest.fixture(scope="session")
def language() -> Language:
    """What the models speak."""
    return build_language()


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory, language: Language) -> Path:
    """The directory with the checkpoints."""
    directory = tmp_path_factory.mktemp("models")
    write_checkpoints(directory, language)
    return directory
