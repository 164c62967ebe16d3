"""``serve``: its flags, and the settings that they override."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

import click

from specdec_exporter import __version__, config
from specdec_exporter.commands import BAD_USAGE, EXIT_CODES, PROG, flags
from specdec_exporter.commands.flags import DURATION, URL, Checked, Choice, Collected, mistakes, option
from specdec_exporter.commands.streams import complain
from specdec_exporter.errors import SpecdecError
from specdec_exporter.formatting import did_you_mean

flag = partial(flags.flag, cls=Collected)

# Flags whose setting has another section or name than the flag.
_SECTIONS = {"window": ("top", "", "window"), "baseline_file": ("predictor", "", "baseline")}
_SETTINGS = {"listen_address": "listen_addresses", "log_path": "log_paths"}


def overrides(flags: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Sort the flags that were set into the sections of :func:`config.load_settings`."""
    sections: dict[str, dict[str, Any]] = {}
    for key, value in flags.items():
        if value is None or value == ():
            continue
        section, _, rest = _SECTIONS.get(key) or key.partition("_")
        sections.setdefault(section, {})[_SETTINGS.get(rest, rest)] = value
    return sections


# Read elsewhere: by cli.py, and for the log from the Kubernetes API.
_OTHER_VARIABLES: Final = ("SPECDEC_TRACEBACK", "SPECDEC_PREDICTOR_CONTAINER")
# Kubernetes sets these for a Service whose name begins with specdec.
_OF_A_SERVICE: Final = re.compile(r"SPECDEC_\w*?(SERVICE_(HOST|PORT\w*)|PORT(_\d+_(TCP|UDP|SCTP)\w*)?)")


def unknown_variables(environment: Iterable[str], known: Iterable[str]) -> Iterator[str]:
    """Yield a sentence for each variable that looks like one of ours and is none."""
    names = [*known, *_OTHER_VARIABLES]
    for variable in sorted(environment):
        if variable.startswith("SPECDEC_") and variable not in names and not _OF_A_SERVICE.fullmatch(variable):
            yield f"{variable} means nothing here{did_you_mean(variable, names)}"


@click.command("serve")
@click.version_option(__version__, prog_name=PROG)
@flag("--config.file", "YAML file with any of these settings. It can list several predictors.", metavar="PATH")
@option("--config.check", "Check the configuration and exit.", is_flag=True)
@flag(
    "--web.listen-address",
    "Address to listen on, repeatable; [::1]:10409 for IPv6.  [default: :10409]",
    metavar="[HOST]:PORT",
    type=Checked("[host]:port", config.valid_listen_address),
    multiple=True,
)
@flag(
    "--web.telemetry-path",
    "Path of the metrics.  [default: /metrics]",
    metavar="PATH",
    type=Checked("path", config.valid_path),
)
@flag("--web.config.file", "TLS and basic auth, in the format of Prometheus exporters.", metavar="PATH")
@flag("--web.enable-lifecycle", "Allow POST /-/reload.", is_flag=True, default=None)
@flag("--web.disable-exporter-metrics", "Leave out process_* and python_info.", is_flag=True, default=None)
@flag(
    "--log.level",
    "Least severe message of the exporter's own log, which goes to stderr.  [default: info]",
    type=Choice(["debug", "info", "warn", "error"]),
)
@flag("--log.format", "Format of the exporter's own log.  [default: logfmt]", type=Choice(["logfmt", "json"]))
@flag("--predictor.url", "Address of the predictor.  [default: http://127.0.0.1:8080]", type=URL)
@flag(
    "--predictor.name",
    "Name of the predictor, for the label inference_service. A pod of KServe has its InferenceService's name."
    "  [default: default]",
    metavar="NAME",
    type=Checked("name", config.valid_name),
)
@flag("--predictor.timeout", "Longest time for each request.  [default: 5s]", type=DURATION)
@flag(
    "--predictor.interval",
    "Time after which the exporter reads the predictor if nobody scrapes.  [default: 15s]",
    type=Checked("duration", config.Interval),
)
@flag("--predictor.ca-file", "CA certificates for the predictor's TLS.  [default: those of the system]", metavar="PATH")
@flag("--predictor.cert-file", "Client certificate, if the predictor demands one.", metavar="PATH")
@flag("--predictor.key-file", "Key of the client certificate.", metavar="PATH")
@flag("--predictor.server-name", "Name in the predictor's certificate.  [default: the URL's host]", metavar="NAME")
@flag("--predictor.insecure-skip-verify", "Accept any certificate.", is_flag=True, default=None)
@flag("--predictor.bearer-token-file", "Token to send with each request.", metavar="PATH")
@flag(
    "--predictor.log-path",
    "The predictor's log: a path or a glob, repeatable; - is stdin. Without this flag no log is read.",
    metavar="PATH",
    multiple=True,
)
@flag(
    "--predictor.log-format",
    "Framing of the log's lines.  [default: auto]",
    type=Choice(["auto", "plain", "cri", "docker"]),
)
@flag(
    "--predictor.log-trust",
    "Whose lines count: those that name the server's own loggers, or any.  [default: server]",
    type=Choice(["server", "any"]),
)
@flag(
    "--predictor.log-from",
    "Where to begin in logs that exist when the exporter starts.  [default: end]",
    type=Choice(["end", "start"]),
)
@flag(
    "--predictor.log-source",
    "Read the log from files, or from the Kubernetes API.  [default: file]",
    type=Choice(["file", "kubernetes"]),
)
@flag("--baseline.file", "Baseline to compare the speed with, from `baseline record`.", metavar="PATH")
@flag(
    "--window",
    "Time span of the figures: of the derived metrics, the page and the API.  [default: 5m]",
    type=DURATION,
)
def command(config_file: str | None, config_check: bool, **flags: Any) -> int:
    """Serve the metrics and the status page of a predictor.

    A configuration file can list several predictors.
    """
    context = click.get_current_context()
    wrong = mistakes(context)
    load = partial(config.load_settings, config_file, overrides(flags))
    try:
        settings = load()
    except SpecdecError as error:
        if not wrong:
            raise
        wrong += error.args
    if wrong:
        complain(wrong)
        return BAD_USAGE
    from specdec_exporter.serving import serve

    own = context.command.params
    unknown = tuple(unknown_variables(os.environ, (str(parameter.envvar) for parameter in own if parameter.envvar)))
    if not config_check:
        return serve.run(settings, load, unknown)
    complain(unknown)
    asyncio.run(serve.check(settings))
    click.echo(f"{config_file or 'flags and environment'}: {len(settings.predictors)} predictor(s), valid")
    return EXIT_CODES["WARN" if unknown else "PASS"]
