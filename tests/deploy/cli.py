"""The exporter's own command line, asked in a process of its own, as an image or a manifest would."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping

import click

from specdec_exporter.commands.serve import command as serve

SERVE_VARIABLES = {
    variable
    for parameter in serve.params
    if isinstance(parameter, click.Option) and isinstance(variable := parameter.envvar, str)
}


def exporter(*arguments: str, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run ``specdec-exporter`` to its end, with no settings but these."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("SPECDEC_")}
    return subprocess.run(
        [sys.executable, "-m", "specdec_exporter", *arguments],
        env=inherited | dict(environment or {}),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
