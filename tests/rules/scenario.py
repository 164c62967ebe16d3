"""Rule unit tests in the words of the domain: services with phases of traffic, and which alerts fire when.

A phase is some minutes of constant behaviour; :func:`service` turns phases into the series that the exporter (or, with
``source="vllm"``, vLLM itself) would serve, and :class:`Pack` puts cases to ``promtool test rules``.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

import rjsonnet

from support import yamltext
from support.promtool import REPOSITORY, Promtool, PromtoolError
from support.rulelint import seconds

INF = float("inf")
# Buckets of vLLM since 0.8.4; the exporter keeps them.
BOUNDS: Mapping[str, tuple[float, ...]] = {
    "tpot": (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
    "ttft": (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0),
    "e2e": (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0),
}
FAMILIES = {
    "exporter": {
        "drafts": "specdec_drafts_total",
        "draft_tokens": "specdec_draft_tokens_total",
        "accepted_tokens": "specdec_accepted_tokens_total",
        "per_position": "specdec_accepted_tokens_per_position_total",
        "generation_tokens": "specdec_generation_tokens_total",
        "preemptions": "specdec_preemptions_total",
        "running": "specdec_requests_running",
        "waiting": "specdec_requests_waiting",
        "kv_cache": "specdec_kv_cache_usage_ratio",
        "steps": "specdec_step_latency_seconds_count",
        "step_seconds": "specdec_step_latency_seconds_sum",
        "tpot": "specdec_time_per_output_token_seconds",
        "ttft": "specdec_time_to_first_token_seconds",
        "e2e": "specdec_request_latency_seconds",
    },
    "vllm": {
        "drafts": "vllm:spec_decode_num_drafts_total",
        "draft_tokens": "vllm:spec_decode_num_draft_tokens_total",
        "accepted_tokens": "vllm:spec_decode_num_accepted_tokens_total",
        "per_position": "vllm:spec_decode_num_accepted_tokens_per_pos_total",
        "generation_tokens": "vllm:generation_tokens_total",
        "preemptions": "vllm:num_preemptions_total",
        "running": "vllm:num_requests_running",
        "waiting": "vllm:num_requests_waiting",
        "kv_cache": "vllm:kv_cache_usage_perc",
        "steps": "vllm:inter_token_latency_seconds_count",
        "step_seconds": "vllm:inter_token_latency_seconds_sum",
        "tpot": "vllm:request_time_per_output_token_seconds",
        "ttft": "vllm:time_to_first_token_seconds",
        "e2e": "vllm:e2e_request_latency_seconds",
    },
}
Source = Literal["exporter", "vllm"]
FLAG = "SpecDecodeAcceptanceLow info"
Groups = list[dict[str, Any]]  # of rules, as in their file
Shares = tuple[tuple[float, float], ...]  # (seconds, share of the requests)

CHAT = {"cluster": "eu-1", "namespace": "prod", "inference_service": "chat", "model_name": "llama"}


def replica(number: int) -> dict[str, str]:
    """The labels of a replica; the usual one has number 0."""
    return {"pod": f"chat-{number}", "instance": f"10.0.0.{number + 1}:10409"}


# A second replica, a twin without the labels that one cluster lacks, and a live control.
SECOND = replica(1)
NOWHERE = {"cluster": "", "namespace": ""}
CONTROL = {"inference_service": "chat-control", "pod": "chat-control-0", "instance": "10.0.1.1:10409"}

# The interval of the pack's slower groups, for runs in which no `for` is tested to the minute. It must be below
# Prometheus' look-back of 5 minutes, or records are missing between two evaluations.
SLOW_MINUTES = 4

STEADY: Mapping[str, Shares] = {
    "tpot": ((0.02, 0.6), (0.03, 0.39), (0.06, 0.01)),
    "ttft": ((0.09, 0.6), (0.2, 0.39), (0.4, 0.01)),
    "e2e": ((4.0, 0.6), (9.0, 0.39), (18.0, 0.01)),
}


def slower(shares: Shares, times: float) -> Shares:
    """All requests slower by a factor."""
    return tuple((seconds * times, share) for seconds, share in shares)


def with_tail(shares: Shares, seconds: float, share: float) -> Shares:
    """Replace a share of the requests by slow ones."""
    return (*((bound, part * (1 - share)) for bound, part in shares), (seconds, share))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """Minutes of constant behaviour of one replica.

    ``curve`` is accepted at the position / drafts; its length is k. ``present`` false: no samples, as
    of a pod that is gone; ``removed``: and Prometheus knows, so its series end at once. ``up`` false: the target is
    there and cannot be read. ``restart``: counters begin at 0 again. ``in_decode``: requests at a time, by their steps;
    by default so many that break-even is assumed to be high.
    """

    minutes: int
    drafts_per_minute: float = 600.0
    curve: tuple[float, ...] = (0.9, 0.8, 0.7)
    draft_length: float | None = None
    requests_per_minute: float = 60.0
    latency: Mapping[str, Shares] = dataclasses.field(default_factory=lambda: STEADY)
    running: float = 4.0
    in_decode: float = 40.0
    waiting: float = 0.0
    kv_cache: float = 0.4
    preemptions_per_minute: float = 0.0
    present: bool = True
    removed: bool = False
    restart: bool = False
    up: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class Series:
    """One input series: values are numbers, ``None`` for a sample that is missing, or NaN where the series ends."""

    name: str
    labels: Mapping[str, str]
    values: Sequence[float | None]

    def text(self) -> dict[str, str]:
        labels = ", ".join(f'{name}="{value}"' for name, value in self.labels.items())
        values = " ".join("_" if value is None else f"{value:.10g}" for value in self.values).replace("nan", "stale")
        return {"series": f"{self.name}{{{labels}}}", "values": values}


class _Counter:
    """Values of one counter, minute by minute."""

    def __init__(self) -> None:
        self.values: list[float | None] = []
        self._now = 0.0

    def restart(self) -> None:
        self._now = 0.0

    def step(self, increment: float | None) -> None:
        if increment is None:
            self.values.append(None)
            return
        self._now += increment
        self.values.append(self._now)


def _target(labels: Mapping[str, str] | None) -> dict[str, str]:
    """The usual labels with others in their place; empty ones are left out."""
    return {name: value for name, value in {**CHAT, **replica(0), **(labels or {})}.items() if value}


def service(
    *phases: Phase,
    source: Source = "exporter",
    speculative: bool = True,
    method: str | None = "eagle3",
    verification: str = "",
    minimum: float = 0.5,
    watch: float = 0.65,
    families: Iterable[str] = (),
    labels: Mapping[str, str] | None = None,
) -> list[Series]:
    """Return the series of one replica over its phases.

    ``labels`` replace the usual ones; empty ones are left out. Not ``speculative``: no draft counters.
    ``verification``: "adaptive" where vLLM verifies only part of each draft. ``minimum`` and ``watch``: the levels that
    the exporter assumes; by default those of a large batch.
    """
    target = _target({"job": "predictors", **(labels or {})})
    own = target | {"engine": "0"}
    names = FAMILIES[source]
    counters: dict[tuple[str, tuple[tuple[str, str], ...]], _Counter] = {}
    gauges: dict[str, list[float | None]] = {"running": [], "waiting": [], "kv_cache": []}
    positions: list[float | None] = []
    up: list[float | None] = []

    def step(name: str, increment: float | None, **extra: str) -> None:
        counters.setdefault((name, tuple(extra.items())), _Counter()).step(increment)

    for phase in phases:
        if phase.restart:
            for counter in counters.values():
                counter.restart()
        for minute in range(phase.minutes):
            first = minute == 0 and (phase.restart or not up)
            present = phase.present and not phase.removed
            answers = present and phase.up

            def grown(amount: float, *, none_yet: bool = first, known: bool = answers) -> float | None:
                return None if not known else 0.0 if none_yet else amount

            up.append(float(phase.up) if present else None)
            drafts = phase.drafts_per_minute
            drafted = drafts * (len(phase.curve) if phase.draft_length is None else phase.draft_length)
            accepted = drafts * sum(phase.curve)
            positions.append(float(len(phase.curve)) if present else None)  # the exporter keeps the last k
            if speculative:
                step(names["drafts"], grown(drafts))
                step(names["draft_tokens"], grown(drafted))
                step(names["accepted_tokens"], grown(accepted))
                for position, rate in enumerate(phase.curve):
                    step(names["per_position"], grown(drafts * rate), position=str(position))
            requests = phase.requests_per_minute
            steps = drafts or requests * 100
            step(names["generation_tokens"], grown(requests + steps + accepted))
            step(names["steps"], grown(steps))
            step(names["step_seconds"], grown(60 * phase.in_decode))
            step(names["preemptions"], grown(phase.preemptions_per_minute))
            for sli in families:
                shares = phase.latency[sli]
                for bound in (*BOUNDS[sli], INF):
                    within = sum(share for seconds, share in shares if seconds <= bound)
                    le = "+Inf" if bound == INF else repr(bound)
                    step(f"{names[sli]}_bucket", grown(requests * within), le=le)
                step(f"{names[sli]}_count", grown(requests))
                step(f"{names[sli]}_sum", grown(requests * sum(seconds * share for seconds, share in shares)))
            for name, value in (("running", phase.running), ("waiting", phase.waiting), ("kv_cache", phase.kv_cache)):
                gauges[name].append(value if answers else None)

    series = [Series(name, own | dict(extra), counter.values) for (name, extra), counter in counters.items()]
    series += [Series(names[name], own, values) for name, values in gauges.items()]
    info: list[float | None] = [1.0 if known is not None else None for known in up]
    about = {name: value for name, value in target.items() if name != "model_name"}
    if source == "exporter":
        series += [Series("specdec_up", about, up), Series("up", about, info)]
        facts = {"vllm_version": "0.32.0", "engine_generation": "v1", "method": method or "", "draft_model": ""}
        series.append(Series("specdec_predictor_info", own | facts | {"verification": verification}, info))
        if speculative:
            series.append(Series("specdec_num_speculative_tokens", own, positions))
            for level, value in (("min", minimum), ("watch", watch)):
                assumed = [value if known is not None else None for known in info]
                series.append(Series(f"specdec_policy_acceptance_ratio_{level}", target, assumed))
    else:
        series.append(Series("up", about, up))
    return [_ended(one, phases) for one in series]


def _ended(series: Series, phases: Sequence[Phase]) -> Series:
    values = list(series.values)
    for number, phase in enumerate(phases):
        if phase.removed:
            values[sum(before.minutes for before in phases[:number])] = math.nan
    return dataclasses.replace(series, values=values)


def pinned(
    minutes: int,
    latency: Mapping[str, Shares] | None = None,
    *,
    requests: float = 5000.0,
    load: float | None = None,
    recorded: float | None = None,
    labels: Mapping[str, str] | None = None,
) -> list[Series]:
    """The constant series of a baseline file. ``load``: that of now / the file's; ``recorded``: when, Unix time."""
    target = _target(labels)
    found: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    for sli, shares in (latency or STEADY).items():
        mean = sum(seconds * share for seconds, share in shares)
        found["specdec_baseline_latency_seconds", (("sli", sli), ("stat", "mean"))] = mean
        ordered, held = sorted(shares), itertools.accumulate(share for _, share in sorted(shares))
        p99 = next(seconds for (seconds, _), share in zip(ordered, held, strict=True) if share >= 0.99)
        found["specdec_baseline_latency_seconds", (("sli", sli), ("stat", "p99"))] = p99
    shares = (latency or STEADY).get("tpot", ())
    held_within = {bound: sum(share for seconds, share in shares if seconds <= bound) for bound in BOUNDS["tpot"]}
    whole = next((bound for bound, share in held_within.items() if share > 1 - 1e-9), INF)
    for bound in (*(each for each, share in held_within.items() if share >= 0.5 and each <= whole), INF):
        within = requests * held_within.get(bound, 1.0)
        le = "+Inf" if bound == INF else repr(bound)
        found["specdec_baseline_time_per_output_token_seconds_bucket", (("le", le),)] = within
    found["specdec_baseline_time_per_output_token_seconds_count", ()] = requests
    if load is not None:
        found["specdec_baseline_load_ratio", ()] = load
    if recorded is not None:
        found["specdec_baseline_recorded_timestamp_seconds", ()] = recorded
    return [Series(name, target | dict(own), [value] * minutes) for (name, own), value in found.items()]


def problem(reason: str, minutes: int, labels: Mapping[str, str] | None = None) -> Series:
    """What an exporter says of its own figures."""
    return Series(
        "specdec_data_problem", _target({"model_name": "", "reason": reason, **(labels or {})}), [1.0] * minutes
    )


def measured(
    minutes: int,
    speedup: float,
    bounds: tuple[float, float] | None = None,
    *,
    break_even: float | None = None,
    labels: Mapping[str, str] | None = None,
) -> list[Series]:
    """The gauges of an exporter that compares with its baseline without speculation, at like load.

    The assumed break-even is always there. ``bounds``: low and high of the speed-up.
    """
    target = _target(labels)

    def gauge(name: str, value: float, basis: str = "measured", **extra: str) -> Series:
        return Series(f"specdec_{name}", target | {"basis": basis} | extra, [value] * minutes)

    series = [gauge("speedup_ratio", speedup), gauge("break_even_acceptance_ratio", 0.5, "assumed")]
    if bounds is not None:
        series += [gauge("speedup_bound_ratio", bounds[0], bound="low")]
        series += [gauge("speedup_bound_ratio", bounds[1], bound="high")]
    if break_even is not None:
        series += [gauge("break_even_acceptance_ratio", break_even)]
    return series


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One scenario. ``firing``: by minute, exactly the alerts that fire then.

    An alert is ``"<alert> <severity>[ <reason>]"``.

    ``values``: by minute, expressions and their one value (``None``: no sample).

    promtool evaluates the whole pack minute by minute for each test, which takes most of its time, however few series
    there are. So all cases of a run are one test, in which the services of a case have its name before theirs.
    """

    name: str
    series: Sequence[Series]
    firing: Mapping[int, set[str]] = dataclasses.field(default_factory=dict)
    values: Mapping[int, Mapping[str, float | None]] = dataclasses.field(default_factory=dict)
    flags: bool = False  # whether the flag of the guides is looked at, which nobody is told of

    @property
    def prefix(self) -> str:
        return re.sub(r"[^a-z0-9]+", "-", self.name.lower()) + "."

    def input_series(self) -> Iterator[Series]:
        for one in self.series:
            renamed = {name: self.prefix + one.labels[name] for name in _RENAMED if name in one.labels}
            yield dataclasses.replace(one, labels={**one.labels, **renamed})

    def checks(self) -> Iterator[dict[str, Any]]:
        """What is expected, as promtool reads it."""
        fired = 'ALERTS{alertstate="firing"}'
        if not self.flags:
            fired += ' unless ALERTS{alertname="SpecDecodeAcceptanceLow", severity="info"}'
        for minute, expected in self.firing.items():
            samples = []
            for alert in sorted(expected):
                name, severity, *more = alert.split()
                labels = f'alertname="{name}", severity="{severity}"'
                labels += "".join(f', reason="{one}"' for one in more)
                samples.append({"labels": f"{{{labels}}}", "value": 1})
            yield self._check(f"group by (alertname, severity, reason) ({fired})", minute, samples)
        for minute, values in self.values.items():
            for expression, value in values.items():
                # Rounded: rates are extrapolated to the edges of their window.
                rounded = f"sum(round({expression}, 0.001))"
                yield self._check(rounded, minute, [] if value is None else [{"labels": "{}", "value": value}])

    def _check(self, expression: str, minute: int, samples: Sequence[Mapping[str, object]]) -> dict[str, Any]:
        return {"expr": self._own(expression), "eval_time": f"{minute}m", "exp_samples": samples}

    def _own(self, expression: str) -> str:
        """The same of the case's services alone, and of what is of no service."""
        matcher = f'inference_service=~"({self.prefix[:-1]}[.].*)?"'
        named = re.sub(rf'\b({"|".join(_RENAMED)})="', rf"\g<0>{self.prefix}", expression)
        return _BARE.sub(rf"\1{{{matcher}}}", named.replace("{", f"{{{matcher}, "))

    def fired(self, alerts: Iterable[Fired]) -> list[Fired]:
        """Those of the case's services, which have their own names again; sorted by labels."""
        own = [one for one in alerts if one.labels.get("inference_service", self.prefix).startswith(self.prefix)]
        flag = tuple(FLAG.split())
        own = [one for one in own if self.flags or (one.labels["alertname"], one.labels["severity"]) != flag]
        return sorted((one.without(self.prefix) for one in own), key=lambda one: sorted(one.labels.items()))


_RENAMED = ("inference_service", "job")
_BARE = re.compile(r"\b(inference_service:\w+:\w+|ALERTS)\b(?!\{)")  # a selector without braces


@dataclasses.dataclass(frozen=True, slots=True)
class Fired:
    """An alert as the rules make it."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]

    def without(self, prefix: str) -> Fired:
        parts = (self.labels, self.annotations)
        return Fired(*({name: text.replace(prefix, "") for name, text in part.items()} for part in parts))

    def __str__(self) -> str:
        return f"{self.labels['alertname']} {self.labels['severity']}: {self.annotations['description']}"


@dataclasses.dataclass(frozen=True, slots=True)
class Pack:
    """Groups of rules, the promtool that evaluates them, and a directory for what promtool reads."""

    promtool: Promtool
    groups: Groups
    directory: Path

    def only(self, *names: str) -> Pack:
        """Some groups of the rules: hours of all of them take long."""
        wanted = {f"specdec-{name}" for name in names}
        return dataclasses.replace(self, groups=[group for group in self.groups if group["name"] in wanted])

    def alone(self, *alerts: str) -> Pack:
        """Some alerts, and the records without history."""
        kept = [
            {**group, "rules": [rule for rule in group["rules"] if "record" in rule or rule["alert"] in alerts]}
            for group in self.groups
            if group["name"] != "specdec-history"
        ]
        return dataclasses.replace(self, groups=kept)

    def run(self, *cases: Case, every: int = 2, step: int = 1) -> None:
        """Run the cases; all rules are evaluated once in ``every`` minutes, and samples are ``step`` minutes apart.

        Every minute, as the pack has it, takes twice the time: for cases that test a `for` to the minute.

        Raises :class:`PromtoolError`, whose words have the case's name in every selector.
        """
        self._test(cases, every, step, promql_expr_test=[check for case in cases for check in case.checks()])

    def fired(self, *asked: tuple[int, Case], every: int = 1) -> list[list[Fired]]:
        """Return what fires at a minute of each case; ``every`` as in :meth:`run`.

        promtool has no command for that, but says what it got where a test expects nothing.
        """
        names = sorted({rule["alert"] for group in self.groups for rule in group["rules"] if "alert" in rule})
        found: dict[int, list[Fired]] = {minute: [] for minute, _ in asked}
        nothing: list[dict[str, Any]] = [
            {"eval_time": f"{minute}m", "alertname": name, "exp_alerts": []} for minute in found for name in names
        ]
        try:
            self._test([case for _, case in asked], every, 1, alert_rule_test=nothing)
        except PromtoolError as told:
            for time, alerts in _answers(told, r"time: (\w+),(.*?)\n {12}\]"):
                got = re.findall(r"Labels:\{(.*?)\}\s*Annotations:\{(.*)\}", alerts)
                found[round(seconds(time) / 60)] += [Fired(_pairs(labels), _pairs(texts)) for labels, texts in got]
        return [case.fired(found[minute]) for minute, case in asked]

    def firing(self, *cases: Case, minutes: Iterable[int], every: int) -> dict[str, dict[int, list[dict[str, str]]]]:
        """Return the labels of all that fires at each minute, by the name of the case; ``every`` as in :meth:`run`."""
        found: dict[str, dict[int, list[dict[str, str]]]] = {case.name: {m: [] for m in minutes} for case in cases}
        expression = 'ALERTS{alertstate="firing"}'
        nothing = [{"expr": expression, "eval_time": f"{minute}m", "exp_samples": []} for minute in minutes]
        try:
            self._test(cases, every, 1, promql_expr_test=nothing)
        except PromtoolError as told:
            for time, got in _answers(told, r"time: (\w+),\s+exp: nil\s+got: ([^\n]*)"):
                for labels in map(_pairs, re.findall(r"\{(.*?)\} 1E\+00", got)):
                    for case in cases:
                        if labels.get("inference_service", case.prefix).startswith(case.prefix):
                            found[case.name][round(seconds(time) / 60)].append(labels)
        return found

    def _test(self, cases: Sequence[Case], every: int, step: int, **expected: Sequence[Mapping[str, Any]]) -> None:
        assert len({case.prefix for case in cases}) == len(cases), "two cases of one name"
        series = [one for case in cases for one in case.input_series()]
        texts = [one.text() for one in series]
        assert len({one["series"] for one in texts}) == len(texts), "a series of no service can be in one case alone"
        name = ", ".join(case.name for case in cases)
        groups = self.groups if "alert_rule_test" in expected else _unannotated(self.groups)
        rules = self.directory / "evaluated.yaml"
        rules.write_text(json.dumps({"groups": groups}), encoding="utf-8")  # which is YAML, too
        document = {
            "rule_files": [str(rules)],
            "evaluation_interval": f"{every}m",
            "group_eval_order": [group["name"] for group in groups],
            "tests": [{"name": name, "interval": f"{step}m", "input_series": texts, **expected}],
        }
        file = self.directory / "test.yaml"
        file.write_text(json.dumps(document), encoding="utf-8")
        self.promtool.test_rules(file)


def _answers(told: PromtoolError, pattern: str) -> list[tuple[str, str]]:
    """What promtool got, by time. Raises ``told`` where a query failed, or nothing ran: nobody knows what fires."""
    found = re.findall(pattern, str(told), re.DOTALL)
    if "err:" in str(told) or not found:
        raise told
    return found


def _pairs(text: str) -> dict[str, str]:
    return {name: json.loads(quoted) for name, quoted in re.findall(r'(\w+)=("(?:[^"\\]|\\.)*")', text)}


def _unannotated(groups: Groups) -> Groups:
    """Texts cost queries at every evaluation at which an alert holds."""
    bare = [[{key: rule[key] for key in rule if key != "annotations"} for rule in group["rules"]] for group in groups]
    return [{**group, "rules": rules} for group, rules in zip(groups, bare, strict=True)]


def evaluated(what: str, config: str = "{}") -> Any:
    """Something of the ``mixin`` with another ``_config``, both in Jsonnet."""
    snippet = f"local mixin = (import 'mixin/mixin.libsonnet') + {{ _config+:: {config} }}; {what}"
    return json.loads(rjsonnet.evaluate_snippet("", snippet, jpathdir=[str(REPOSITORY)]))


def groups_with(config: str) -> Groups:
    """The groups of the pack with another ``_config``, in Jsonnet."""
    groups: Groups = evaluated("mixin.prometheusRules.groups + mixin.prometheusAlerts.groups", config)
    return groups


def rule_groups(rules: Path) -> Groups:
    """The groups of a file of rules, which is parsed once."""
    return _parsed(rules.read_text(encoding="utf-8"))


@cache
def _parsed(rules: str) -> Groups:
    groups: Groups = yamltext.load(rules)["groups"]
    return groups
