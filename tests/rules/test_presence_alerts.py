"""Alerts about what is not there: predictors, drafts, metrics, baselines; and about the pack itself."""

from __future__ import annotations

import dataclasses

from rules.scenario import SECOND, Case, Pack, Phase, Series, Source, service

QUIET: set[str] = set()
WARMING = "inference_service:specdec_warming_replicas:ratio"


def test_targets_of_one_address_in_two_clusters(vllm_pack: Pack) -> None:
    """Without the sidecar; `up` has the labels of the target, and a cluster by its side must not make it an error."""
    series = []
    for cluster, later in (("a", 1.0), ("b", 0.0)):
        target = {"cluster": cluster, "namespace": "prod", "job": "vllm", "instance": "10.0.0.1:8000"}
        own = target | {"inference_service": "chat", "model_name": "llama", "engine": "0"}
        drafted: list[float | None] = [300.0 * minute for minute in range(40)]
        series.append(Series("vllm:spec_decode_num_draft_tokens_total", own, drafted if later else drafted[:20]))
        series.append(Series("up", target, [1.0] * 20 + [later] * 20))
    down = 'count(ALERTS{alertname="SpecDecodeTargetDown", alertstate="firing", cluster="b"})'
    vllm_pack.run(Case(name="two", series=series, values={19: {down: None}, 30: {down: 1}}))


def test_a_pod_is_not_held_against_one_of_another_cluster(pack: Pack) -> None:
    """Its target is gone, and one with its address is down elsewhere."""
    gone, down = Phase(minutes=70, removed=True), Phase(minutes=70, present=False)
    series = [
        each
        for cluster, last in (("a", gone), ("b", down))
        for pod, phases in (("0", (Phase(minutes=20), last)), ("1", (Phase(minutes=90),)))
        for each in service(
            *phases,
            labels={"cluster": cluster, "pod": f"chat-{pod}", "instance": f"10.0.0.{pod}:10409"},
        )
    ]
    target = {"namespace": "prod", "job": "predictors"}
    for cluster, pod, values in (("a", 0, [1.0] * 20), ("b", 0, [1.0] * 20 + [0.0] * 70), ("a", 1, [1.0] * 90)):
        series.append(Series("up", target | {"cluster": cluster, "instance": f"10.0.0.{pod}:10409"}, values))
    fired = 'count(ALERTS{alertname="SpecDecodeTargetDown", alertstate="firing", cluster="%s"})'
    pack.run(Case(name="two", series=series, values={60: {fired % "a": None, fired % "b": 1}}))


def test_a_service_at_zero_is_not_down_where_another_has_its_address(either_pack: Pack, source: Source) -> None:
    """The other starts, fails for an hour, and dies; `up` has the labels of the pod, as of a PodMonitor."""
    first, later = Phase(minutes=20), Phase(minutes=20, present=False)
    zero = service(first, Phase(minutes=70, removed=True), source=source)
    other = {"inference_service": "code", "pod": "code-0"}
    fails = service(later, Phase(minutes=10), Phase(minutes=60, up=False), source=source, labels=other)
    series = [each for each in (*zero, *fails) if each.name != "up"]
    target = {"cluster": "eu-1", "namespace": "prod", "job": "predictors", "instance": "10.0.0.1:10409"}
    series.append(Series("up", target | {"pod": "chat-0"}, [1.0] * 20))
    series.append(Series("up", target | {"pod": "code-0"}, [None] * 20 + [1.0] * 10 + [0.0] * 60))
    down = 'count(ALERTS{alertname="SpecDecodeTargetDown", alertstate="firing", inference_service="%s"})'
    either_pack.run(Case(name="zero", series=series, values={80: {down % "chat": None, down % "code": 2}}))


def test_a_scrape_that_fails_is_no_start(pack: Pack) -> None:
    """Fifteen minutes after it, there is nothing at the same moment of the past."""
    failing = [phase for _ in range(5) for phase in (Phase(minutes=19), Phase(minutes=1, up=False))]
    silent = [dataclasses.replace(phase, drafts_per_minute=0) for phase in failing]
    pack.run(
        Case(
            name="one in twenty",
            series=service(*failing),
            values={minute: {f"{WARMING} > 0": None} for minute in (34, 35, 54, 55, 74, 75)},
        ),
        Case(name="nothing is drafted", series=service(*silent), firing={70: {"SpecDecodeNotDrafting warning"}}),
        Case(
            name="scaled out",
            series=service(Phase(minutes=100))
            + service(Phase(minutes=60, present=False), Phase(minutes=40), labels=SECOND),
            firing={65: QUIET},
            values={65: {WARMING: 0.5}},
        ),
    )


def test_counters_of_which_nothing_is_accepted_contradict_nothing(pack: Pack) -> None:
    untrusted = 'count(ALERTS{alertname="SpecDecodeDataUntrusted"})'
    series = service(Phase(minutes=40, curve=(0.0, 0.0)))
    pack.run(Case(name="nothing accepted", series=series, values={38: {untrusted: None}}))


def test_replicas_with_different_buckets(pack: Pack) -> None:
    first = service(Phase(minutes=60), families=("tpot",))
    other = service(Phase(minutes=60), families=("tpot",), labels=SECOND)
    fewer = [one for one in other if one.labels.get("le") not in {"0.075", "0.15"}]
    longer = service(Phase(minutes=80), families=("tpot",))
    shorter = [dataclasses.replace(one, values=one.values[:20]) for one in fewer]
    pack.run(
        Case(name="mixed", series=first + fewer, firing={50: {"SpecDecodeDataUntrusted warning buckets_mixed tpot"}}),
        # Until the window holds buckets of one kind, quantiles are missing. That is no news.
        Case(name="no longer", series=longer + shorter, firing=dict.fromkeys(range(50, 70), QUIET)),
    )


def test_histograms_that_do_not_arrive(either_pack: Pack, source: Source) -> None:
    """Whatever drops them: Prometheus 3 converts all to native ones, a relabelling may drop the buckets."""
    lost = "SpecDecodeDataUntrusted warning histograms_missing"
    both = service(Phase(minutes=60), families=("tpot",), source=source)
    idle = service(Phase(minutes=60, requests_per_minute=0, drafts_per_minute=0), source=source)
    either_pack.run(
        Case(name="no buckets", series=without(both, "_bucket"), firing={55: {lost}}),
        Case(name="no histogram", series=without(both, "_seconds_"), firing={30: QUIET, 55: {lost}}),
        Case(name="no traffic", series=without(idle, "_seconds_"), firing={55: QUIET}),
    )


def without(series: list[Series], part: str) -> list[Series]:
    return [one for one in series if part not in one.name]


def test_rules_that_fail(pack: Pack) -> None:
    group = {"rule_group": "/etc/rules/specdec.rules.yaml;specdec-tails"}
    failed = Series("prometheus_rule_evaluation_failures_total", group, [0.0] * 15 + [1.0] * 25)
    lagging = {"SpecDecodeRulesLagging warning"}
    pack.run(Case(name="an evaluation failed", series=[failed], firing={14: QUIET, 35: lagging}))


def test_a_ruler_that_tells_nothing_of_itself(either_pack: Pack, source: Source) -> None:
    """Mimir, Amazon's and Google's services, and vmalert lack Prometheus' own metrics; the age of the records tells."""
    broken = [group for group in either_pack.groups if group["name"] != "specdec-speculation"]
    running = service(Phase(minutes=40), source=source)

    dataclasses.replace(either_pack, groups=broken).run(
        Case(name="no records", series=running, firing={10: QUIET, 35: {"SpecDecodeRulesLagging warning"}}),
    )
