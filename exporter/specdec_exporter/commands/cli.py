"""Commands: parse, call, print. No logic."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any, Literal

import click

from specdec_exporter import __version__
from specdec_exporter.errors import ConfigError, SpecdecError
from specdec_exporter.serving.lean import load_when_used

PROG = "specdec-exporter"
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


# Commands that are not here, by the module that has them under their name.
_LOADED_WHEN_ASKED_FOR = {
    "baseline": "specdec_exporter.commands.baseline",
    "compare": "specdec_exporter.commands.compare",
    "simulate": "specdec_exporter.commands.simulate",
}


class _Commands(click.Group):
    """Without a command (only flags, or nothing at all) the command is ``serve``.

    Some commands have a module of their own, loaded when it is asked for: serving must not pay for it.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *_LOADED_WHEN_ASKED_FOR])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if module := _LOADED_WHEN_ASKED_FOR.get(cmd_name):
            command: click.Command = getattr(import_module(module), cmd_name)
            return command
        return super().get_command(ctx, cmd_name)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] not in ("-h", "--help", "--version")):
            args = ["serve", *args]
        return super().parse_args(ctx, args)


def _flag(name: str, text: str, **kwargs: Any) -> Decorator:
    """Return an option with its environment twin: ``--predictor.url`` and ``SPECDEC_PREDICTOR_URL``.

    Unset means ``None`` (or an empty tuple), so that the file and the defaults can speak.
    """
    key = name.lstrip("-").replace(".", "_").replace("-", "_")
    return click.option(name, key, envvar=f"SPECDEC_{key.upper()}", show_envvar=True, help=text, **kwargs)


class _Checked(click.ParamType[Any]):
    """What the function of this name in :mod:`config` accepts; its ConfigError becomes bad usage (exit code 2)."""

    def __init__(self, name: str, function: str) -> None:
        self.name = name
        self._function = function

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from specdec_exporter import config  # noqa: PLC0415  analyze needs nothing of it

        try:
            return getattr(config, self._function)(value)
        except ConfigError as error:
            self.fail(str(error), param, ctx)


DURATION = _Checked("duration", "parse_duration")
LISTEN_ADDRESS = _Checked("listen address", "valid_listen_address")
SERVE_FLAGS: tuple[Decorator, ...] = (
    _flag("--config.file", "YAML file with any of these settings, and with several predictors.", metavar="PATH"),
    click.option("--config.check", "config_check", is_flag=True, help="Check the configuration and exit."),
    _flag(
        "--web.listen-address",
        "Address to listen on, repeatable; [::1]:10409 for IPv6.  [default: :10409]",
        multiple=True,
        type=LISTEN_ADDRESS,
        metavar="[HOST]:PORT",
    ),
    _flag(
        "--web.telemetry-path",
        "Path of the metrics.  [default: /metrics]",
        type=_Checked("path", "valid_path"),
        metavar="PATH",
    ),
    _flag("--web.config.file", "TLS and basic auth, in the format of Prometheus exporters.", metavar="PATH"),
    _flag("--web.enable-lifecycle", "Allow POST /-/reload.", is_flag=True, default=None),
    _flag("--web.disable-exporter-metrics", "Leave out process_* and python_info.", is_flag=True, default=None),
    _flag(
        "--log.level",
        "Least severe message of the exporter's own log, which goes to stderr.  [default: info]",
        type=click.Choice(["debug", "info", "warn", "error"]),
    ),
    _flag(
        "--log.format", "Format of the exporter's own log.  [default: logfmt]", type=click.Choice(["logfmt", "json"])
    ),
    _flag(
        "--predictor.url",
        "The predictor.  [default: http://127.0.0.1:8080]",
        type=_Checked("URL", "valid_url"),
        metavar="URL",
    ),
    _flag(
        "--predictor.name",
        "Its name: the label inference_service.  [default: default]",
        type=_Checked("name", "valid_name"),
        metavar="NAME",
    ),
    _flag("--predictor.timeout", "Longest a fetch of its metrics may take.  [default: 5s]", type=DURATION),
    _flag(
        "--predictor.log-path",
        "Its log: a path or a glob, repeatable; - is stdin. Without one no log is read.",
        multiple=True,
        metavar="PATH",
    ),
    _flag(
        "--predictor.log-format",
        "Framing of the log's lines.  [default: auto]",
        type=click.Choice(["auto", "plain", "cri", "docker"]),
    ),
    _flag(
        "--predictor.log-from",
        "Where to begin in logs that are there at the start.  [default: end]",
        type=click.Choice(["end", "start"]),
    ),
    _flag(
        "--predictor.log-source",
        "Read the log from files, or from the Kubernetes API.  [default: file]",
        type=click.Choice(["file", "kubernetes"]),
    ),
    _flag("--predictor.log-state", "File that keeps the read positions over a restart.", metavar="PATH"),
    _flag("--baseline.file", "Baseline of the predictor, from `baseline record`, to serve beside it.", metavar="PATH"),
    _flag("--window", "Span of the figures for people.  [default: 5m]", type=DURATION),
)


def _serve_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(SERVE_FLAGS):
        command = option(command)
    return command


# Flags whose setting is not where their names say.
_SECTIONS = {"window": ("top", "", "window"), "baseline_file": ("predictor", "", "baseline")}


def _overrides(flags: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Sort what was set by flag or environment into the sections of :func:`config.load_settings`."""
    names = {"listen_address": "listen_addresses", "log_path": "log_paths"}
    sections: dict[str, dict[str, Any]] = {}
    for key, value in flags.items():
        if value is None or value == ():
            continue
        section, _, rest = _SECTIONS.get(key) or key.partition("_")
        sections.setdefault(section, {})[names.get(rest, rest)] = value
    return sections


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name=PROG)
def cli() -> None:
    """Tell whether vLLM's speculative decoding pays off: metrics, verdict and status page for a predictor.

    Without a command: serve.
    """


@cli.command()
@click.version_option(__version__, prog_name=PROG)
@_serve_flags
def serve(config_file: str | None, config_check: bool, **flags: Any) -> int:
    """Serve the metrics and the status page of a predictor (or of several, from a file)."""
    from specdec_exporter.config import load_settings  # noqa: PLC0415  each command imports what it needs

    load = partial(load_settings, config_file, _overrides(flags))
    settings = load()
    if config_check:
        if settings.web.config_file:
            from specdec_exporter.web import webconfig  # noqa: PLC0415

            webconfig.WebConfigFile(settings.web.config_file)
        from specdec_exporter.serving.runtime import read_pinned  # noqa: PLC0415

        read_pinned(settings)
        click.echo(f"{config_file or 'flags and environment'}: {len(settings.predictors)} predictor(s), valid")
        return 0
    from specdec_exporter.serving.lean import lean_imports  # noqa: PLC0415

    with lean_imports():
        from specdec_exporter.serving import serve as serving  # noqa: PLC0415

    return serving.run(settings, load)


@cli.command()
@click.option("--url", help="What to ask.  [default: the first --web.listen-address]")
@_flag(
    "--web.listen-address",
    "As given to serve.  [default: :10409]",
    multiple=True,
    type=LISTEN_ADDRESS,
    metavar="[HOST]:PORT",
)
def healthcheck(url: str | None, web_listen_address: tuple[str, ...]) -> int:
    """Ask the exporter in this container whether it is healthy: a probe for images without a shell."""
    from specdec_exporter.commands.healthcheck import probe  # noqa: PLC0415

    return probe(url, web_listen_address)


@cli.command()
@click.argument("url")
@click.option(
    "--log-path", "log_paths", multiple=True, metavar="PATH", help="The predictor's log: path or glob, repeatable."
)
@click.option("--timeout", type=DURATION, default="5s", show_default=True, help="Longest each request may take.")
@click.option("--interval", type=DURATION, default="2s", show_default=True, help="Time between the two readings.")
@click.option("--baseline", metavar="FILE", help="Baseline, from `baseline record`, to compare its speed with.")
@click.option(
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="For people, or one object.",
)
def check(
    url: str,
    *,
    log_paths: tuple[str, ...],
    timeout: float,
    interval: float,
    baseline: str | None,
    output: Literal["text", "json"],
) -> int:
    """Examine the predictor at URL and say what is well, what is not, and what to do.

    Exits with 0 if all is well, 2 with warnings, 1 if it failed.
    """
    import asyncio  # noqa: PLC0415  a third of what the other commands take to start

    from specdec_exporter.commands import check as checking  # noqa: PLC0415

    return asyncio.run(
        checking.check(
            url,
            log_paths=log_paths,
            baseline_path=baseline,
            timeout_seconds=timeout,
            interval_seconds=interval,
            output=output,
        )
    )


@cli.command()
@click.argument("paths", nargs=-1, metavar="[FILE|-]...")
@click.option(
    "--output",
    type=click.Choice(["text", "jsonl"]),
    default="text",
    show_default=True,
    help="A report, or one JSON object per recognised line.",
)
@click.option(
    "--responses",
    multiple=True,
    metavar="FILE",
    help="Saved responses, one JSON object a line, of vLLM 0.29.0 or later with --per-request-spec-decode-metrics; "
    "repeatable. Logs given beside it tell the temperature of each request.",
)
def analyze(paths: tuple[str, ...], output: Literal["text", "jsonl"], responses: tuple[str, ...]) -> int:
    """Tell what a predictor's log says about speculation: kubectl logs POD | specdec-exporter analyze -"""
    if responses:
        from specdec_exporter.commands.responses import analyze_responses  # noqa: PLC0415

        return analyze_responses(paths, responses, output=output)
    gc.set_threshold(100_000)  # neither loading modules nor reading a log leaves much behind
    from specdec_exporter.commands import analyze as analysing  # noqa: PLC0415

    return analysing.analyze(paths or ("-",), output=output)


def main() -> None:
    """Run a command; errors of ours are one line on stderr, usage errors exit with 2."""
    load_when_used()
    try:
        code = cli.main(prog_name=PROG, standalone_mode=False)
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except click.Abort:
        code = 130
    except SpecdecError as error:
        click.echo(f"{PROG}: {error}", err=True)
        code = 1
    except Exception as error:
        if os.environ.get("SPECDEC_TRACEBACK"):
            raise
        click.echo(
            f"{PROG}: internal error: {type(error).__name__}: {error} (SPECDEC_TRACEBACK=1 shows where)", err=True
        )
        code = 1
    gc.freeze()  # or the interpreter looks for garbage before it ends, a tenth of what a short command costs
    sys.exit(code if isinstance(code, int) else 0)
