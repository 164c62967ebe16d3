"""``tune``: which k, at which load. It reads recordings, or makes them in turn."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any, Literal

import click
import msgspec

from specdec_exporter.baseline.file import Baseline, read_baseline
from specdec_exporter.commands.flags import DURATION, Checked, access_flags, context_flags, log_paths_flag
from specdec_exporter.commands.recording import DEFAULT_URL, given_context, with_scheme
from specdec_exporter.commands.turns import CONFIG_VARIABLE, K_VARIABLE, TEMPERATURE_VARIABLE, Turns, recordings_of
from specdec_exporter.comparison.requests import temperatures_of
from specdec_exporter.config import SYSTEM_TRUST, Access
from specdec_exporter.predictor.speculativeconfig import given_config
from specdec_exporter.speculation.policy import load_policy

_DURATION_SECONDS = 600.0
_RESTART_SECONDS = 900.0  # a large model loads for minutes
_TIMEOUT_SECONDS = 5.0


def _ks(text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdecimal() and len(part) < 5 for part in parts):
        raise ValueError(f"expected numbers of draft tokens such as 0,1,3, found {text!r}")
    found = tuple(map(int, parts))
    if len(set(found)) < len(found):
        raise ValueError(f"expected each k once, found {text!r}")
    return found


def _temperatures(text: str) -> tuple[float, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(re.fullmatch(r"\d(\.\d{1,3})?", part, re.ASCII) for part in parts):
        raise ValueError(f"expected temperatures such as 0,0.4,0.8,1, found {text!r}")
    found = tuple(map(float, parts))
    if len(set(found)) < len(found):
        raise ValueError(f"expected each temperature once, found {text!r}")
    return found


def _object(text: str) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise ValueError(f"expected a JSON object: {error}") from None
    if not found.get("method"):
        raise ValueError('expected a "method" in it')
    return found


_HELP = f"""
    Decide whether speculation pays at each load, and which k is best.

    \b
    tune FILE...               reads recordings of `baseline record`
    tune --k 0,3,6 --directory DIR --method M --draft-model DRAFT
                               records in turn, then decides
    tune --temperatures 0,0.4,0.8,1 --load-command CMD --directory DIR [FILE...]
                               records the running predictor at each temperature
    tune --k 0,3 --temperatures 0,0.4,0.8,1 ...
                               records both in turn

    The recordings are of one model: one without speculation, the others with any methods and k. The load is what the
    predictor serves meanwhile: live traffic, or a load generator that runs on.

    In turn means: for each k the predictor is restarted with the --speculative-config of this k. tune prints it and
    waits for you, or runs --restart-command. It then waits until the predictor is back, has warmed up and finishes
    requests, and records. Each recording is written to DIR/k3.yaml as soon as it is complete. The same command goes
    on after an interruption: it takes the recordings that are there.

    --restart-command is run by the shell, and must leave the predictor running in the background. It finds the JSON in
    {CONFIG_VARIABLE} (empty: without speculation), and k in {K_VARIABLE}.

    --load-command sends requests at the temperature in {TEMPERATURE_VARIABLE}. The shell runs it again and again while
    a recording runs, and ends it then. The answer says from which temperature on speculation no longer pays. Without
    --k, a FILE without speculation is needed to know that; acceptance is shown all the same.

    Exit codes: 0 done; 1 an error; 2 bad usage.
"""


@click.command("tune", help=_HELP)
@click.argument("files", nargs=-1, metavar="[FILE]...")
@click.option(
    "--output",
    type=click.Choice(["text", "markdown", "json"]),
    default="text",
    show_default=True,
    help="For a terminal, for a report, or for programs.",
)
@click.option("--plot", metavar="FILE", help="Also draw the speed-up over the load: FILE.svg or FILE.png.")
@click.option("--k", "ks", type=Checked("k,k,...", _ks), help="Record these k in turn; 0 is without speculation.")
@click.option(
    "--temperatures",
    type=Checked("t,t,...", _temperatures),
    help="Record these temperatures in turn, with --load-command; with --k, each k at all of them.",
)
@click.option("--load-command", metavar="COMMAND", help="Sends requests while a recording runs.  [default: others do]")
@click.option("--directory", metavar="DIR", help="When recording: where to keep the recordings.")
@click.option("--method", help="With --k: the method, in vLLM's spelling.")
@click.option("--draft-model", metavar="MODEL", help="With --k: the draft model or head, if the method has one.")
@click.option(
    "--speculative-config",
    "config",
    type=Checked("JSON", _object),
    help="With --k, instead of --method: the whole configuration. k is filled in, and a schedule of k left out.",
)
@click.option("--restart-command", metavar="COMMAND", help="With --k: restarts the predictor.  [default: you do]")
@click.option(
    "--restart-timeout",
    "restart_limit",
    type=DURATION,
    help="With --k: longest wait for a restart, and then for the first request.  [default: 15m]",
)
@click.option(
    "--warm-up", type=DURATION, help="When recording: time from each restart to the recording.  [default: 1m]"
)
@click.option("--duration", type=DURATION, help="When recording: how long each recording is.  [default: 10m]")
@click.option("--predictor.url", "url", metavar="URL", help=f"When recording: the predictor.  [default: {DEFAULT_URL}]")
@access_flags
@log_paths_flag(
    "--predictor.log-path", "When recording: its log, to check method and draft model: path or glob, repeatable."
)
@click.option("--timeout", type=DURATION, help="When recording: longest time for each request.  [default: 5s]")
@context_flags
@click.option("--force", is_flag=True, help="When recording: record again what is there.")
def command(
    *,
    files: tuple[str, ...],
    output: Literal["text", "markdown", "json"],
    plot: str | None,
    ks: tuple[int, ...] | None,
    temperatures: tuple[float, ...] | None,
    load_command: str | None,
    directory: str | None,
    method: str | None,
    draft_model: str | None,
    config: dict[str, Any] | None,
    restart_command: str | None,
    restart_limit: float | None,
    warm_up: float | None,
    duration: float | None,
    url: str | None,
    access: Access,
    log_paths: tuple[str, ...],
    timeout: float | None,
    force: bool,
    **context: str | None,
) -> int:
    """Read or make the recordings, then print what they say."""
    from specdec_exporter.comparison.tuning import tune
    from specdec_exporter.terminal.tuning import write_tuning

    if plot is not None:
        from specdec_exporter.terminal.plot import check_plot

        check_plot(plot)
    recordings = [read_baseline(file) for file in files]
    if ks is None and temperatures is None:
        given = (
            load_command,
            directory,
            method,
            draft_model,
            config,
            restart_command,
            restart_limit,
            warm_up,
            duration,
            url,
        )
        if any(given) or access != SYSTEM_TRUST or log_paths or timeout or force or any(context.values()):
            raise click.UsageError("flags for recording need --k or --temperatures: what to record")
        if not files:
            raise click.UsageError("give FILEs of `baseline record`, or --k or --temperatures to record now")
    else:
        if directory is None:
            raise click.UsageError("recording needs --directory: where to keep the recordings")
        if temperatures and load_command is None:
            raise click.UsageError("--temperatures needs --load-command: what sends requests at each temperature")
        if temperatures and temperatures_of((context["request_parameters"] or "").casefold()):
            raise click.UsageError("--request-parameters: leave out the temperature, which --temperatures adds")
        if ks is None and restart_command:
            raise click.UsageError("--restart-command needs --k: without it, the predictor is recorded as it runs")
        if ks and 0 not in ks and not any(map(_is_plain, recordings)):
            raise click.UsageError("nothing to compare with: add 0 to --k, or a FILE recorded without speculation")
        if ks and given_config(context["command"]):
            raise click.UsageError("--command: leave out --speculative-config, which differs by k")
        turns = Turns(
            url=with_scheme(url or DEFAULT_URL),
            access=access,
            ks=ks or (),
            temperatures=temperatures or (),
            config=_config(ks or (), method, draft_model, config),
            directory=Path(directory),
            duration_seconds=duration or _DURATION_SECONDS,
            warm_up_seconds=warm_up or load_policy().cost.warm_up_seconds,
            restart_command=restart_command,
            load_command=load_command,
            restart_limit_seconds=restart_limit or _RESTART_SECONDS,
            timeout_seconds=timeout or _TIMEOUT_SECONDS,
            log_paths=log_paths,
            context=given_context(context),
            force=force,
        )
        recordings += recordings_of(turns)
    tuning = tune(recordings, load_policy())
    write_tuning(sys.stdout, tuning, output)
    if plot is not None:
        from specdec_exporter.terminal.plot import draw_tuning

        draw_tuning(plot, tuning)
    return 0


def _is_plain(recording: Baseline) -> bool:
    return recording.counts.draft_tokens is None


def _config(
    ks: tuple[int, ...], method: str | None, draft_model: str | None, config: dict[str, Any] | None
) -> dict[str, Any]:
    """Return the speculative configuration, whose k is filled in later."""
    if config is not None:
        if method or draft_model:
            raise click.UsageError("--speculative-config excludes --method and --draft-model")
        return config
    if method is None and any(ks):
        raise click.UsageError("--k needs --method (and --draft-model), or --speculative-config")
    return ({"method": method} if method else {}) | ({"model": draft_model} if draft_model else {})
