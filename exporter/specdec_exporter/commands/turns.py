"""``tune --k``: one recording for each k. Before each, the operator or a command restarts the predictor."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import click
import msgspec

from specdec_exporter.baseline.file import Baseline, Context, read_baseline, write_baseline
from specdec_exporter.commands.recording import record_beside, said
from specdec_exporter.config import Access
from specdec_exporter.errors import BaselineError, FetchError
from specdec_exporter.formatting import plain
from specdec_exporter.predictor.speculativeconfig import config_for, given_config
from specdec_exporter.predictor.versions import canonical_method

CONFIG_VARIABLE = "SPECDEC_SPECULATIVE_CONFIG"
K_VARIABLE = "SPECDEC_NUM_SPECULATIVE_TOKENS"
_LINES_SHOWN = 10  # of a failed command's output
_OUTPUT_BYTES = 16_384
_STOP_SECONDS = 5.0


class Turns(msgspec.Struct, frozen=True, kw_only=True):
    """What is recorded, beside which predictor, and who restarts it.

    ``config`` is vLLM's speculative configuration, of which only k changes. ``restart_command``: without one, the
    operator is prompted.
    """

    url: str
    access: Access
    ks: tuple[int, ...]
    config: dict[str, Any]
    directory: Path
    duration_seconds: float
    warm_up_seconds: float
    restart_command: str | None
    restart_limit_seconds: float
    timeout_seconds: float
    log_paths: tuple[str, ...]
    context: Context
    force: bool

    def file(self, k: int) -> Path:
        """Return where the recording of ``k`` is kept."""
        return self.directory / f"k{k}.yaml"

    def json(self, k: int) -> str:
        """Return the configuration with ``k``; empty without speculation."""
        return json.dumps(config_for(self.config, None, k), ensure_ascii=False) if k else ""


def recordings_of(turns: Turns) -> list[Baseline]:
    """Return one recording for each k: those in the directory, and new ones for the rest.

    Each new one is written when it is complete. Raises :class:`BaselineError`, and UsageError if somebody must be
    prompted but nobody can be.
    """
    _make_directory(turns.directory)
    found = {k: _kept(turns, k) for k in turns.ks}
    missing = [k for k, recording in found.items() if recording is None]
    if missing and turns.restart_command is None and not sys.stdin.isatty():
        raise click.UsageError(
            "somebody must restart the predictor for each k, and this is not a terminal: give --restart-command"
        )
    for number, k in enumerate(missing, start=1):
        _say(f"Recording {number} of {len(missing)}: {_with(k)}")
        try:
            found[k] = _record(turns, k)
        except (BaselineError, FetchError) as error:
            _say(f"Complete recordings are kept in {turns.directory}; the same command goes on {_with(k)}.")
            raise BaselineError(f"recording {_with(k)}: {error}") from error
    if missing:
        _say(f"The predictor still runs {_with(missing[-1])}.")
    return [recording for recording in found.values() if recording is not None]


def _with(k: int) -> str:
    return f"with k = {k}" if k else "without speculation"


def _say(text: str) -> None:
    click.echo(plain(text), err=True)


def _make_directory(directory: Path) -> None:
    try:
        directory.mkdir(exist_ok=True)
    except OSError as error:
        raise BaselineError(f"{directory}: expected a directory that can be made: {error.strerror or error}") from error
    if not os.access(directory, os.W_OK | os.X_OK):
        raise BaselineError(f"{directory}: expected a directory that can be written")


def _kept(turns: Turns, k: int) -> Baseline | None:
    """Return the recording that is there already, ``None`` if ``k`` is to be recorded."""
    file = turns.file(k)
    if turns.force or not file.exists():
        return None
    kept = read_baseline(str(file))
    drafted = kept.counts.draft_tokens is not None
    others = "choose another --directory, or record again with --force"
    if drafted != bool(k) or (k and kept.num_speculative_tokens not in (k, None)):
        has = f"with k = {kept.num_speculative_tokens or '?'}" if drafted else "without speculation"
        raise BaselineError(f"{file}: expected a recording {_with(k)}, found one {has}: {others}")
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


def _record(turns: Turns, k: int) -> Baseline:
    from specdec_exporter.baseline.restart import Asked, glance, wait_until_ready

    before = asyncio.run(glance(turns.url, turns.timeout_seconds, turns.access))
    _restart(turns, k)
    _say("Waiting for the predictor.")
    asyncio.run(
        wait_until_ready(
            turns.url,
            before,
            Asked(k, turns.config.get("method"), turns.config.get("model")),
            access=turns.access,
            log_paths=turns.log_paths,
            warm_up_seconds=turns.warm_up_seconds,
            limit_seconds=turns.restart_limit_seconds,
            timeout_seconds=turns.timeout_seconds,
            say=_say,
        )
    )
    file = turns.file(k)
    recorded = asyncio.run(
        record_beside(
            turns.url,
            turns.duration_seconds,
            access=turns.access,
            log_paths=turns.log_paths,
            timeout_seconds=turns.timeout_seconds,
            name=file.stem,
            context=_with_config(turns.context, turns.json(k)),
        )
    )
    if k and recorded.method is None:  # no log told it, but the operator did
        recorded = msgspec.structs.replace(recorded, method=turns.config.get("method"))
    write_baseline(str(file), recorded, force=True)
    _say(f"{file}: {said(recorded)}")
    if recorded.interrupted:
        raise BaselineError(
            f"the recording ended after {recorded.duration_seconds:,.0f} s of {turns.duration_seconds:,.0f} s"
        )
    return recorded


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
        _run(turns.restart_command, {CONFIG_VARIABLE: config, K_VARIABLE: str(k)}, turns.restart_limit_seconds)
        return
    if config:
        _say("Restart the predictor with")
        _say(f"  --speculative-config {shlex.quote(config)}")
    else:
        _say("Restart the predictor without --speculative-config.")
    click.echo("Press Enter when it starts: ", nl=False, err=True)
    if not sys.stdin.readline():
        raise click.Abort


def _run(command: str, variables: dict[str, str], limit_seconds: float) -> None:
    """Run a shell command. Raises :class:`BaselineError` with its last lines if it fails or takes too long."""
    # A file, not a pipe: a server that the command leaves running may hold its output open.
    with tempfile.TemporaryFile() as output:
        # In a session of its own, such a server also survives Ctrl-C here.
        process = subprocess.Popen(  # noqa: S602  the operator's own command line
            command,
            shell=True,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **variables},
        )
        try:
            code = process.wait(limit_seconds)
        except subprocess.TimeoutExpired:
            _stop(process)
            raise BaselineError(
                f"the restart command has not ended within {limit_seconds:g} s: it must start the predictor in the "
                f"background{_last_lines(output)}"
            ) from None
        except BaseException:
            _stop(process)
            raise
        if code:
            how = f"exit code {code}" if code > 0 else f"signal {-code}"
            raise BaselineError(f"the restart command failed with {how}{_last_lines(output)}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the command and what it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_SECONDS)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _last_lines(output: IO[bytes]) -> str:
    output.seek(max(output.seek(0, os.SEEK_END) - _OUTPUT_BYTES, 0))
    lines = [line for line in output.read().decode(errors="replace").splitlines() if line.strip()]
    if not lines:
        return "; it printed nothing"
    return "\n  ".join(["; its last lines:", *map(plain, lines[-_LINES_SHOWN:])])
