"""``specdec-exporter simulate``: flags, environment and scenario file into settings, then the server."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable
from typing import Any

import click
import msgspec

from specdec_exporter.simulator.scenario import Scenario, load_scenario, parse_incident
from specdec_exporter.simulator.server import describe, run
from specdec_exporter.simulator.settings import SimulatorSettings, settings_from_scenario
from specdec_exporter.simulator.units import parse_seconds

_DEFAULTS = SimulatorSettings()


class _IncidentText(click.types.StringParamType):
    envvar_list_splitter = ";"


def _duration(_: click.Context, __: click.Parameter, value: str | None) -> float | None:
    try:
        return None if value is None else float(parse_seconds(value))
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _rates(_: click.Context, __: click.Parameter, value: str | None) -> tuple[float, ...] | None:
    try:
        return None if value is None else tuple(float(rate) for rate in value.split(","))
    except ValueError:
        raise click.BadParameter(f"expected rates such as 0.9,0.7,0.5, found {value!r}") from None


def _option(flag: str, field: str, help_text: str, **attributes: Any) -> Callable[[Any], Any]:
    """A flag with its environment twin; its parameter is called like the settings' field."""
    return click.option(
        flag,
        field,
        envvar=f"SPECDEC_SIMULATE_{flag.removeprefix('--').replace('-', '_').upper()}",
        show_envvar=True,
        help=help_text,
        **attributes,
    )


def _setting(flag: str, help_text: str, **attributes: Any) -> Callable[[Any], Any]:
    """A flag whose default is the one of the settings."""
    field = flag.removeprefix("--").replace("-", "_")
    default = getattr(_DEFAULTS, field, getattr(_DEFAULTS.latency, field, None))
    return _option(flag, field, help_text, default=default, show_default=default is not None, **attributes)


_FLAGS = (
    _setting("--listen-address", "HOST:PORT to listen on; port 0 takes a free one."),
    _setting("--log-path", "Append the log to this file; '-' is standard output."),
    _option(
        "--duration",
        "duration_seconds",
        "Stop after so much real time. [default: run until stopped]",
        callback=_duration,
        metavar="DURATION",
    ),
    _option(
        "--scenario",
        "scenario",
        "YAML file with settings and incidents; flags beat it.",
        type=click.Path(dir_okay=False),
    ),
    _option(
        "--incident",
        "incidents",
        "An incident, e.g. 'collapse at=60s for=2m acceptance=0.2'. Kinds: collapse, drift, latency, restart, "
        "stop_drafting, load, position_cliff, metrics_error. May be repeated (in the environment: separated by ';').",
        type=_IncidentText(),
        metavar="TEXT",
        multiple=True,
    ),
    _setting("--speed", "Simulated seconds per real second."),
    _setting("--seed", "Seed of all randomness."),
    _setting("--vllm-version", "The release whose metrics and log are imitated, 0.6.6 to 0.33.0."),
    _setting(
        "--engine-generation", "V0 or V1 engine; auto: V1 from 0.8.0 on.", type=click.Choice(["auto", "v0", "v1"])
    ),
    _setting("--frontend", "Front end; rust from 0.22.1 on.", type=click.Choice(["python", "rust"])),
    _setting("--model", "The target model."),
    _option(
        "--served-model-name", "served_model_name", "The model's name in the API and in metrics. [default: --model]"
    ),
    _setting("--method", "Speculation method as vLLM calls it; none: speculation off."),
    _setting("--draft-model", "The draft model, for methods that have one."),
    _setting("--k", "Speculative tokens per draft."),
    _option(
        "--acceptance",
        "acceptance",
        "Acceptance of every position, accepted at it / drafts, e.g. 0.9,0.7,0.5; never rising. "
        "The number of rates is k unless --k says otherwise.",
        callback=_rates,
        metavar="R,R,...",
    ),
    _option(
        "--acceptance-rate",
        "acceptance_rate",
        f"Accepted / drafted tokens; the curve is geometric. [default: {_DEFAULTS.acceptance}]",
        type=click.FloatRange(0, 1),
    ),
    _setting("--short-draft-share", "Share of drafts shorter than k, as with ngram."),
    _setting("--no-draft-share", "Share of a request's steps without a draft, as with ngram."),
    _setting("--load", "Synthetic load: 4/s is requests per second, 16 is concurrent requests, 0 none."),
    _setting("--prompt-tokens", "Mean prompt length of synthetic requests."),
    _setting("--output-tokens", "Mean output length."),
    _setting("--max-num-seqs", "Requests executed at once per engine; the rest waits."),
    _setting("--max-model-len", "Longest prompt and output together."),
    _setting("--engines", "Engines (data-parallel ranks)."),
    _setting("--api-servers", "API servers; with several there are no periodic log lines."),
    _option(
        "--disable-log-stats",
        "disable_log_stats",
        "As vLLM's flag: no engine metrics, no periodic lines.",
        is_flag=True,
    ),
    _option(
        "--log-interval",
        "log_interval_seconds",
        "Simulated time between periodic lines. [default: 10s, with the V0 engine 5s]",
        callback=_duration,
        metavar="DURATION",
    ),
    _setting("--step-seconds", "Duration of an engine step without drafts."),
    _setting("--draft-token-seconds", "What each draft token adds to it."),
    _setting("--request-seconds", "What each further request of the batch adds to it."),
    _setting("--prefill-seconds", "Median prefill time."),
    _setting("--prefill-sigma", "Spread of prefill times (lognormal)."),
    _setting("--tail-share", "Share of slow requests."),
    _setting("--tail-factor", "How much slower they are."),
)


def _flags(command: Callable[..., None]) -> Callable[..., None]:
    for flag in reversed(_FLAGS):
        command = flag(command)
    return command


@click.command()
@_flags
@click.pass_context
def simulate(context: click.Context, /, **_: Any) -> None:
    """Serve a simulated vLLM predictor: OpenAI API, /metrics and log in vLLM's shapes. No vLLM, no model.

    Durations take units (90s, 5m, 1h). Latencies and incidents are in simulated time, which --speed makes faster.
    """
    settings = settings_from_flags(context)
    asyncio.run(_serve(settings))


def settings_from_flags(context: click.Context) -> SimulatorSettings:
    """Settings from flags and environment, over those of the scenario file, over the defaults.

    Raises :class:`~specdec_exporter.errors.ConfigError` naming flag or file and key.
    """
    given = {
        name: value
        for name, value in context.params.items()
        if context.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT
    }
    path = given.pop("scenario", None)
    scenario = load_scenario(path) if path else Scenario()
    incidents = tuple(parse_incident(text) for text in given.pop("incidents", ()))
    scenario = msgspec.structs.replace(scenario, incidents=scenario.incidents + incidents)
    if (rate := given.pop("acceptance_rate", None)) is not None:
        given["acceptance"] = rate
    return settings_from_scenario(scenario, f"scenario {path}" if path else "simulate", given)


async def _serve(settings: SimulatorSettings) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):
            loop.add_signal_handler(number, stop.set)
    await run(settings, ready=lambda port: click.echo(describe(settings, port), err=True), stop=stop)
