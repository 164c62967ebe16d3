"""``tune --k`` and ``--temperatures``: one recording for each k and temperature.

Before each k, the operator or a command restarts the predictor. For each temperature, a command sends the requests.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any, NamedTuple

import click
import msgspec

from specdec_exporter.baseline.file import Baseline, Context, read_baseline, write_baseline
from specdec_exporter.commands.recording import record_beside, said
from specdec_exporter.commands.shellcommand import Load, run
from specdec_exporter.comparison.requests import temperatures_of, workload_of
from specdec_exporter.config import Access
from specdec_exporter.errors import BaselineError, FetchError
from specdec_exporter.formatting import plain
from specdec_exporter.predictor.speculativeconfig import config_for, given_config
from specdec_exporter.predictor.versions import canonical_method

CONFIG_VARIABLE = "SPECDEC_SPECULATIVE_CONFIG"
K_VARIABLE = "SPECDEC_NUM_SPECULATIVE_TOKENS"
TEMPERATURE_VARIABLE = "SPECDEC_TEMPERATURE"


class Turn(NamedTuple):
    """One recording. ``k`` ``None``: the predictor as it runs; 0: without speculation. ``temperature`` may be open."""

    k: int | None
    temperature: float | None

    def __str__(self) -> str:
        """Return what the recording is made with, in words."""
        words = {None: "as it runs", 0: "without speculation"}.get(self.k, f"with k = {self.k}")
        return words if self.temperature is None else f"{words}, temperature {self.temperature:g}"

    @property
    def name(self) -> str:
        """The name of its file, without the suffix."""
        parts = (("k", self.k), ("t", self.temperature))
        return "-".join(f"{letter}{value:g}" for letter, value in parts if value is not None)


class Turns(msgspec.Struct, frozen=True, kw_only=True):
    """What is recorded, beside which predictor, and who restarts it.

    ``config`` is vLLM's speculative configuration, of which only k changes. ``restart_command``: without one, the
    operator is prompted. ``load_command`` sends requests while each recording runs; without one, others do.
    """

    url: str
    access: Access
    ks: tuple[int, ...]
    temperatures: tuple[float, ...]
    config: dict[str, Any]
    directory: Path
    duration_seconds: float
    warm_up_seconds: float
    restart_command: str | None
    load_command: str | None
    restart_limit_seconds: float
    timeout_seconds: float
    log_paths: tuple[str, ...]
    context: Context
    force: bool

    @property
    def turns(self) -> list[Turn]:
        """The recordings: for each k all temperatures, so that the predictor restarts once for each k."""
        return [Turn(k, temperature) for k in self.ks or (None,) for temperature in self.temperatures or (None,)]

    def file(self, turn: Turn) -> Path:
        """Return where the recording of ``turn`` is kept."""
        return self.directory / f"{turn.name}.yaml"

    def json(self, k: int | None) -> str:
        """Return the configuration with ``k``; empty without speculation, and for the predictor as it runs."""
        return json.dumps(config_for(self.config, None, k), ensure_ascii=False) if k else ""


def recordings_of(turns: Turns) -> list[Baseline]:
    """Return one recording for each turn: those in the directory, and new ones for the rest.

    Each new one is written when it is complete. Raises :class:`BaselineError`, and UsageError if somebody must be
    prompted but nobody can be.
    """
    _make_directory(turns.directory)
    found = {turn: _kept(turns, turn) for turn in turns.turns}
    missing = [turn for turn, recording in found.items() if recording is None]
    if missing and turns.ks and turns.restart_command is None and not sys.stdin.isatty():
        raise click.UsageError(
            "somebody must restart the predictor for each k, and this is not a terminal: give --restart-command"
        )
    running: int | None = None
    for number, turn in enumerate(missing, start=1):
        _say(f"Recording {number} of {len(missing)}: {turn}")
        try:
            found[turn] = _record(turns, turn, restart=turn.k != running)
        except (BaselineError, FetchError) as error:
            _say(f"Complete recordings are kept in {turns.directory}; the same command goes on {turn}.")
            raise BaselineError(f"recording {turn}: {error}") from error
        running = turn.k
    if missing and turns.ks:
        _say(f"The predictor still runs {Turn(running, None)}.")
    return [recording for recording in found.values() if recording is not None]


def _say(text: str) -> None:
    click.echo(plain(text), err=True)


def _make_directory(directory: Path) -> None:
    try:
        directory.mkdir(exist_ok=True)
    except OSError as error:
        raise BaselineError(f"{directory}: expected a directory that can be made: {error.strerror or error}") from error
    if not os.access(directory, os.W_OK | os.X_OK):
        raise BaselineError(f"{directory}: expected a directory that can be written")


def _kept(turns: Turns, turn: Turn) -> Baseline | None:
    """Return the recording that is there already, ``None`` if ``turn`` is to be recorded."""
    file, k = turns.file(turn), turn.k
    if turns.force or not file.exists():
        return None
    kept = read_baseline(str(file))
    drafted = kept.counts.draft_tokens is not None
    others = "choose another --directory, or record again with --force"
    if k is not None and (drafted != bool(k) or (k and kept.num_speculative_tokens not in (k, None))):
        has = str(Turn(kept.num_speculative_tokens if drafted else 0, None)).replace("as it runs", "with k = ?")
        raise BaselineError(f"{file}: expected a recording {Turn(k, None)}, found one {has}: {others}")
    temperatures = temperatures_of(workload_of(kept))
    if turn.temperature is not None and temperatures not in ((), (turn.temperature,)):
        has = ", ".join(f"{each:g}" for each in temperatures)
        raise BaselineError(f"{file}: expected a recording at temperature {turn.temperature:g}, found {has}: {others}")
    had = given_config(kept.context.command) | ({"method": kept.method} if kept.method else {})
    for what, key in (("method", "method"), ("draft model", "model")):
        found, wanted = (canonical_method(str(config.get(key) or "")) for config in (had, turns.config))
        if k and found and wanted and found != wanted:
            raise BaselineError(f"{file}: expected the {what} {wanted}, found {found}: {others}")
    if kept.interrupted:
        _say(f"{file}: it was interrupted, so it is recorded again")
        return None
    _say(f"{file}: it is there already ({said(kept)}); --force records it again")
    return kept


def _record(turns: Turns, turn: Turn, *, restart: bool) -> Baseline:
    variables = {TEMPERATURE_VARIABLE: "" if turn.temperature is None else f"{turn.temperature:g}"}
    with Load(turns.load_command, variables) as load:
        _make_ready(turns, turn, load, restart=restart)
        recorded = asyncio.run(
            load.during(
                record_beside(
                    turns.url,
                    turns.duration_seconds,
                    access=turns.access,
                    log_paths=turns.log_paths,
                    timeout_seconds=turns.timeout_seconds,
                    name=turn.name,
                    context=_with_temperature(_with_config(turns.context, turns.json(turn.k)), turn.temperature),
                )
            )
        )
    if turn.k != 0 and recorded.method is None:  # no log told it, but the operator did
        recorded = msgspec.structs.replace(recorded, method=turns.config.get("method"))
    file = turns.file(turn)
    write_baseline(str(file), recorded, force=True)
    _say(f"{file}: {said(recorded)}")
    if recorded.interrupted:
        raise BaselineError(
            f"the recording ended after {recorded.duration_seconds:,.0f} s of {turns.duration_seconds:,.0f} s"
        )
    return recorded


def _make_ready(turns: Turns, turn: Turn, load: Load, *, restart: bool) -> None:
    """Have the predictor restarted if need be, start the load, and wait until requests finish."""
    from specdec_exporter.baseline.restart import Asked, glance, wait_until_ready

    before = None
    if restart and turn.k is not None:
        before = asyncio.run(glance(turns.url, turns.timeout_seconds, turns.access))
        _restart(turns, turn.k)
        _say("Waiting for the predictor.")
    asyncio.run(
        load.during(
            wait_until_ready(
                turns.url,
                before,
                Asked(turn.k, turns.config.get("method"), turns.config.get("model")),
                access=turns.access,
                log_paths=turns.log_paths,
                warm_up_seconds=turns.warm_up_seconds,
                limit_seconds=turns.restart_limit_seconds,
                timeout_seconds=turns.timeout_seconds,
                say=_say,
                returned=load.start,
            )
        )
    )


def _with_temperature(context: Context, temperature: float | None) -> Context:
    """Add the temperature to the request parameters."""
    if temperature is None:
        return context
    said_already = f"{context.request_parameters}, " if context.request_parameters else ""
    return msgspec.structs.replace(context, request_parameters=f"{said_already}temperature {temperature:g}")


def _with_config(context: Context, config: str) -> Context:
    """Add the configuration to what is known of the command that started vLLM."""
    if not config:
        return context
    flag = f"--speculative-config {shlex.quote(config)}"
    return msgspec.structs.replace(context, command=f"{context.command} {flag}" if context.command else flag)


# --- Restarting -------------------------------------------------------------------------------------------------------


def _restart(turns: Turns, k: int) -> None:
    """Have the predictor restarted with ``k``; it need not be back at the end."""
    config = turns.json(k)
    if turns.restart_command is not None:
        _say(f"Running {turns.restart_command}")
        run(turns.restart_command, {CONFIG_VARIABLE: config, K_VARIABLE: str(k)}, turns.restart_limit_seconds)
        return
    if config:
        _say("Restart the predictor with")
        _say(f"  --speculative-config {shlex.quote(config)}")
    else:
        _say("Restart the predictor without --speculative-config.")
    click.echo("Press Enter when it starts: ", nl=False, err=True)
    if not sys.stdin.readline():
        raise click.Abort
