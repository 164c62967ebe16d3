"""``simulate``: read flags, environment and scenario file, then run the simulated predictor."""

from __future__ import annotations

import asyncio
import signal
from functools import partial
from typing import Any

import click

from specdec_exporter.commands.flags import Checked, Decorator, flag, with_flags
from specdec_exporter.simulator.scenario import parse_incident
from specdec_exporter.simulator.settings import SimulatorSettings, load_simulation
from specdec_exporter.simulator.units import parse_seconds

_DEFAULTS = SimulatorSettings()


class _IncidentText(click.types.StringParamType):
    envvar_list_splitter = ";"


def _rates(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(rate) for rate in text.split(","))
    except ValueError:
        raise ValueError(f"expected rates such as 0.9,0.7,0.5, found {text!r}") from None


_DURATION = Checked("duration", parse_seconds)
_option = partial(flag, prefix="SPECDEC_SIMULATE_")


def _setting(name: str, text: str, **attributes: Any) -> Decorator:
    """Return a flag with the default of the setting of its name."""
    field = name.removeprefix("--").replace("-", "_")
    default = getattr(_DEFAULTS, field, getattr(_DEFAULTS.latency, field, None))
    return _option(name, text, default=default, show_default=default is not None, **attributes)


_FLAGS = (
    _setting("--listen-address", "HOST:PORT to listen on; port 0 takes a free one."),
    _setting("--log-path", "Append the log to this file; '-' is standard output."),
    _option(
        "--duration", "Stop after this real time. [default: run until stopped]", key="duration_seconds", type=_DURATION
    ),
    _option("--scenario", "YAML file with settings and incidents. Flags override it.", type=click.Path(dir_okay=False)),
    _option(
        "--incident",
        "An incident, e.g. 'collapse at=60s for=2m acceptance=0.2'. Kinds: collapse, drift, latency, restart, "
        "stop_drafting, load, position_cliff, metrics_error. Repeatable (in the environment: separated by ';').",
        key="incidents",
        type=_IncidentText(),
        metavar="TEXT",
        multiple=True,
    ),
    _setting("--speed", "Simulated seconds per real second."),
    _option(
        "--uptime",
        "Real time that the process seems to have run already when it starts, so that nobody waits for its warm-up.",
        key="uptime_seconds",
        type=_DURATION,
    ),
    _setting("--seed", "Seed of all randomness."),
    _setting("--vllm-version", "The vLLM release to imitate, 0.6.6 to 0.33.0."),
    _setting(
        "--engine-generation", "V0 or V1 engine; auto is V1 since 0.8.0.", type=click.Choice(["auto", "v0", "v1"])
    ),
    _setting("--frontend", "Front end; rust exists since 0.22.1.", type=click.Choice(["python", "rust"])),
    _setting("--model", "The target model."),
    _option("--served-model-name", "The model's name in the API and in metrics. [default: --model]"),
    _setting("--method", "Speculation method in vLLM's spelling; none switches speculation off."),
    _setting("--draft-model", "The draft model, if the method has one."),
    _setting("--k", "Speculative tokens per draft."),
    _option(
        "--acceptance",
        "Acceptance of each position (accepted there / drafts), e.g. 0.9,0.7,0.5; it must not rise. "
        "Without --k, k is the number of rates.",
        type=Checked("rates", _rates),
        metavar="R,R,...",
    ),
    _option(
        "--acceptance-rate",
        f"Accepted / drafted tokens; the curve is geometric. [default: {_DEFAULTS.acceptance}]",
        type=click.FloatRange(0, 1),
    ),
    _setting("--short-draft-share", "Share of drafts shorter than k, as with ngram."),
    _setting("--no-draft-share", "Share of steps without a draft, as with ngram."),
    _setting("--load", "Synthetic load: 4/s is requests per second, 16 is concurrent requests, 0 is none."),
    _setting("--prompt-tokens", "Mean prompt length of synthetic requests."),
    _setting("--output-tokens", "Mean output length."),
    _setting("--max-num-seqs", "Requests that one engine runs at once; others wait."),
    _setting("--max-model-len", "Longest prompt and output together."),
    _setting("--engines", "Engines (data-parallel ranks)."),
    _setting("--api-servers", "API servers; several write no periodic log lines."),
    _option("--disable-log-stats", "Like vLLM's flag: no engine metrics, no periodic log lines.", is_flag=True),
    _option(
        "--log-interval",
        "Simulated time between periodic lines. [default: 10s, with the V0 engine 5s]",
        key="log_interval_seconds",
        type=_DURATION,
    ),
    _setting("--step-seconds", "Duration of an engine step without drafts."),
    _setting("--draft-token-seconds", "Time that each draft token adds to a step."),
    _setting("--request-seconds", "Time that each further request of the batch adds to a step."),
    _setting("--batched-token-seconds", "Time that each draft token of the batch's further requests adds to a step."),
    _setting("--prefill-seconds", "Median prefill time."),
    _setting("--prefill-sigma", "Spread of prefill times (sigma of a lognormal distribution)."),
    _setting("--tail-share", "Share of slow requests."),
    _setting("--tail-factor", "How many times slower a slow request is."),
)


@click.command("simulate")
@with_flags(*_FLAGS)
@click.pass_context
def command(context: click.Context, /, **_: Any) -> None:
    """Serve a simulated vLLM predictor: OpenAI API, /metrics and log in vLLM's shapes. No vLLM and no model run.

    Durations take units (90s, 5m, 1h). Latencies and incidents are in simulated time; --speed makes it pass faster.
    """
    asyncio.run(_serve(settings_from_flags(context)))


def settings_from_flags(context: click.Context) -> SimulatorSettings:
    """Return the settings. Flags and environment override the scenario file, which overrides the defaults.

    Raises :class:`~specdec_exporter.errors.ConfigError`, which names the flag, or the file and the key.
    """
    given = {
        name: value
        for name, value in context.params.items()
        if context.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT
    }
    if (rate := given.pop("acceptance_rate", None)) is not None:
        given["acceptance"] = rate
    given["incidents"] = tuple(map(parse_incident, given.get("incidents", ())))
    return load_simulation(given.pop("scenario", None), given)


async def _serve(settings: SimulatorSettings) -> None:
    from specdec_exporter.simulator.server import describe, run

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await run(settings, ready=lambda port: click.echo(describe(settings, port), err=True), stop=stop)
