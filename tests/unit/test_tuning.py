"""Recordings of one model together: what drafts cost by load, the best k, and the configuration that follows."""

from __future__ import annotations

import io
import itertools
import json
import math
import random
import re
from collections.abc import Sequence
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from anyrecording import recordings
from builders import known, numbers
from promtool import REPOSITORY
from recordings import CONTEXT, loaded, recording
from specdec_exporter.baseline.file import Baseline, to_yaml
from specdec_exporter.baseline.reading import parse_baseline
from specdec_exporter.comparison.advice import Advice, AdviceCode, BestByLoad, BestK
from specdec_exporter.comparison.keeping import Rule, RuleCode
from specdec_exporter.comparison.loads import AtLoad
from specdec_exporter.comparison.sweep import Along, Limit, Overall, Row
from specdec_exporter.comparison.tuning import Recorded, Setting, Tuning, TuningFlag, TuningFlagCode
from specdec_exporter.comparison.tuning import tune as tune_by_policy
from specdec_exporter.errors import ComparisonError
from specdec_exporter.speculation.cost import ExpectedSpeedup, KChoice, StepCost
from specdec_exporter.speculation.policy import load_policy
from specdec_exporter.terminal.sections import as_json
from specdec_exporter.terminal.tuning import as_markdown, print_tuning

replace = msgspec.structs.replace
CODE, CHAT = (0.5, 0.4, 0.33), (0.16, 0.02, 0.01)
LOADS = (0.9, 3.0, 7.0, 15.0, 30.0, 60.0)
CURVE = (0.7, 0.5, 0.35, 0.25, 0.18, 0.12)
CONFIG = '{"method": "eagle3", "model": "/head", "num_speculative_tokens": 6}'
COMMAND = f"vllm serve m --speculative-config '{CONFIG}'"


def tune(*found: Baseline) -> Tuning:
    return tune_by_policy(found, load_policy())


def codes(tuning: Tuning) -> set[str]:
    return {flag.code for flag in tuning.flags}


def requests(text: str | None, **changes: Any) -> dict[str, Any]:
    return {"context": replace(CONTEXT, request_parameters=text, **changes)}


class Server:
    """A server whose step times are known: without drafts by load, and what drafts add, which grows with the load."""

    def __init__(
        self, fixed: float = 0.1, marginal: float = 0.05, growth: float = 1 / 20, curve: Sequence[float] = CURVE
    ) -> None:
        self.fixed, self.marginal, self.growth, self.curve = fixed, marginal, growth, curve

    def plain(self, load: float) -> float:
        return 0.02 * (1 + load / 40)

    def slowdown(self, k: int, load: float) -> float:
        return 1.0 + (self.fixed + k * self.marginal) * (1 + load * self.growth) if k else 1.0

    def speedup(self, k: int, load: float) -> float:
        return (1.0 + sum(self.curve[:k])) / self.slowdown(k, load)

    def best(self, load: float, k_max: int) -> int:
        return max(range(k_max + 1), key=lambda k: self.speedup(k, load))

    def record(self, k: int, loads: Sequence[float] = LOADS, **facts: Any) -> Baseline:
        times = {load: self.plain(load) * self.slowdown(k, load) for load in loads}
        given = {"name": f"k{k}", "intervals": 60, "noise": 0.02, **facts}
        return loaded(given.pop("name"), times, self.curve[:k], **given)


# --- The guide --------------------------------------------------------------------------------------------------------


def test_the_guides_code_keeps_its_k() -> None:
    """EAGLE-3 with k = 3 and 0.50 / 0.40 / 0.33 ran at 88.25 against 47.84 tokens/s."""
    tuning = tune(loaded("plain", {1.0: 1 / 47.84}), loaded("code", {1.0: 2.23 / 88.25}, CODE))
    (setting,), (advice,) = tuning.settings, tuning.advice
    assert known(setting.whole.speedup).value == pytest.approx(1.84, abs=0.03)
    assert known(setting.whole.draft_cost_ratio).value == pytest.approx(0.07, abs=0.01)
    assert setting.whole.pays
    assert (advice.code, advice.method, advice.num_speculative_tokens) == ("use", "eagle3", 3)
    assert advice.speculative_config == {"method": "eagle3", "num_speculative_tokens": 3}
    assert any(reason.startswith('add "model"') for reason in advice.reasons)


def test_the_guides_chat_gets_a_bracket_and_no_k() -> None:
    """0.16 / 0.02 / 0.01 at 0.99x: if all of the cost is marginal k = 1 pays, if all of it is fixed none does."""
    tuning = tune(loaded("plain", {1.0: 1 / 47.87}), loaded("chat", {1.0: 1.19 / 47.45}, CHAT))
    (setting,), (advice,) = tuning.settings, tuning.advice
    assert known(setting.whole.draft_cost_ratio).value == pytest.approx(0.067, abs=0.01)
    assert setting.whole.pays is False
    (best,) = tuning.best[0].by_load
    assert best.choice.candidates == (0, 1)
    assert (advice.code, advice.num_speculative_tokens, advice.speculative_config) == ("record_more", None, None)
    assert advice.action == "Record k = 1 too."


def test_workloads_stand_side_by_side_with_one_cost() -> None:
    found = [
        loaded("plain", {1.0: 1 / 47.84}, **requests("any")),
        loaded("code", {1.0: 2.23 / 88.25}, CODE, **requests("code")),
        loaded("chat", {1.0: 1.19 / 47.45}, CHAT, **requests("Chat")),
    ]
    tuning = tune(*found)
    assert [each.workload for each in tuning.advice] == ["chat", "code"]
    costs = [known(each.whole.draft_cost_ratio).value for each in tuning.settings]
    assert costs == [pytest.approx(0.068, abs=0.01)] * 2
    assert "request_parameters_differ" in codes(tuning)


# --- A server whose cost is known -------------------------------------------------------------------------------------


def test_two_k_tell_the_fixed_cost_from_the_marginal_one() -> None:
    server = Server()
    tuning = tune(server.record(0, name="plain"), server.record(2), server.record(6))
    for found in tuning.best[0].by_load:
        (cost,) = found.costs
        grown = 1 + found.concurrency * server.growth
        assert cost.marginal == pytest.approx(server.marginal * grown, abs=0.012 * grown)
        assert cost.fixed == pytest.approx(server.fixed * grown, abs=0.05 * grown)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("fixed", "marginal"), [(0.0, 0.05), (0.1, 0.05), (0.4, 0.02), (0.05, 0.2)])
def test_the_best_k_is_the_best_by_brute_force_or_as_good(fixed: float, marginal: float, seed: int) -> None:
    server = Server(fixed, marginal)
    tuning = tune(*(server.record(k, seed=seed) for k in (0, 2, 6)))
    assert len(tuning.best[0].by_load) == len(LOADS)
    for found in tuning.best[0].by_load:
        chosen = known(found.choice.recommended)
        best = server.speedup(server.best(found.concurrency, 6), found.concurrency)
        assert server.speedup(chosen, found.concurrency) >= 0.97 * best


def test_a_schedule_has_the_best_k_of_each_load_in_vllms_own_syntax() -> None:
    server = Server(marginal=0.08)
    facts = requests("any", command=COMMAND)
    (advice,) = tune(*(server.record(k, noise=0.005, **facts) for k in (0, 3, 6))).advice
    config = known(advice.speculative_config)
    schedule = config.pop("num_speculative_tokens_per_batch_size")
    assert config == {"method": "eagle3", "model": "/head", "num_speculative_tokens": schedule[0][2]}
    ends = [0, *(last for _, last, _ in schedule)]
    assert [first for first, _, _ in schedule] == [end + 1 for end in ends[:-1]]
    assert ends[-1] == 64
    for load in LOADS:
        (k,) = (k for first, last, k in schedule if first <= math.ceil(load) <= last)
        assert server.speedup(k, load) >= 0.98 * server.speedup(server.best(load, 6), load)
    assert len({k for _, _, k in schedule}) == len(schedule) > 1
    assert any("beyond 64 running nothing was recorded" in reason for reason in advice.reasons)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("noise", [0.1, 0.3, 0.6])
def test_chance_alone_does_not_make_k_rise_and_fall_with_the_load(noise: float, seed: int) -> None:
    server = Server(marginal=0.15)
    (best,) = tune(*(server.record(k, noise=noise, seed=seed, **requests("any")) for k in (0, 3, 6))).best
    ks = [known(each.choice.recommended) for each in best.by_load]
    assert len([one for one, other in itertools.pairwise(ks) if one != other]) <= 2, ks


def test_a_schedule_says_where_the_gain_is_not_shown() -> None:
    server = Server(marginal=0.15)
    (advice,) = tune(*(server.record(k, noise=0.6, seed=3, **requests("any")) for k in (0, 3, 6))).advice
    assert (advice.code, advice.headline) == ("use", "eagle3, k by load: 3 up to 32, 0 up to 64 running")
    (doubt,) = (reason for reason in advice.reasons if "not decided at every load" in reason)
    assert "at 0.9" in doubt


def test_flags_of_one_kind_are_printed_once() -> None:
    server = Server()
    found = [server.record(k, loads=(0.01,), name=f"{k}-{each}") for k in (0, 3) for each in range(3)]
    tuning = tune(*found)
    few = [flag for flag in tuning.flags if flag.code == "too_few_requests"]
    console = Console(width=80, record=True, file=io.StringIO())
    print_tuning(console, tuning)
    text = console.export_text()
    assert len(few) == 6
    assert text.count("too_few_requests") == 1
    assert "(and 5 more recordings have this flag)" in " ".join(text.split())


@pytest.mark.parametrize(
    ("version", "command", "keys"),
    [
        ("0.24.0", COMMAND, {"num_speculative_tokens_per_batch_size"}),
        ("0.24.0", f"{COMMAND} --data-parallel-size 2", set()),
        ("0.23.0", COMMAND, set()),
        ("0.16.0", COMMAND, set()),
        ("0.9.2", COMMAND, {"disable_by_batch_size"}),
        (None, COMMAND, set()),
    ],
)
def test_what_a_release_cannot_do_is_not_recommended(version: str | None, command: str, keys: set[str]) -> None:
    """k = 3 pays at low load and loses at high load."""
    server = Server(fixed=0.05, marginal=0.02, growth=1 / 4, curve=CODE)
    facts = {**requests("any", command=command), "vllm_version": version, "noise": 0.005}
    found = [server.record(0, **facts), server.record(1, **facts), server.record(3, **facts)]
    # Most of the time at a low load, where speculation pays.
    busiest = server.record(3, loads=(3.0,), name="busy", intervals=200, **facts)
    (advice,) = tune(*found, busiest).advice
    config = known(advice.speculative_config)
    assert set(config) - {"method", "model", "num_speculative_tokens"} <= keys
    if version == "0.24.0" and keys:
        assert config["num_speculative_tokens_per_batch_size"][-1][2] == 0
    if not keys:
        assert config["num_speculative_tokens"] == 3
        assert any(reason.startswith("the best k differs by load") for reason in advice.reasons)


def test_a_limit_is_the_last_load_at_which_speculation_pays() -> None:
    server = Server(fixed=0.6, marginal=0.0, growth=1 / 10, curve=CODE)
    facts = {"vllm_version": "0.9.2", "noise": 0.003, **requests("any", command=COMMAND)}
    (advice,) = tune(*(server.record(k, **facts) for k in (0, 1, 3))).advice
    paying = [load for load in LOADS if server.speedup(3, load) > 1.0]
    assert paying == [0.9, 3.0, 7.0]
    assert known(advice.speculative_config) == {
        "method": "eagle3",
        "model": "/head",
        "num_speculative_tokens": 3,
        "disable_by_batch_size": 8,
    }


def test_the_crossover_is_where_the_speedup_falls_below_one() -> None:
    server = Server(fixed=0.4, marginal=0.0, curve=CODE)  # 2.23 = 1 + 0.4 (1 + b / 20) at b = 41.5
    tuning = tune(server.record(0), server.record(3))
    (setting,), (advice,) = tuning.settings, tuning.advice
    found = known(setting.crossover_concurrency)
    assert found.value == pytest.approx(41.5, rel=0.05)
    assert known(found.low) < 41.5 < known(found.high)
    assert f"eagle3, k = 3 pays below about {found.value:.1f} running; it was recorded at 19.3" in advice.reasons


def test_recordings_of_one_setting_at_several_loads_count_together() -> None:
    server = Server(fixed=0.4, marginal=0.0, curve=CODE)
    apart = [server.record(k, [load], name=f"k{k} at {load:.0f}") for k in (0, 3) for load in LOADS]
    (setting,) = tune(*apart).settings
    assert len(setting.recordings) == len(LOADS)
    assert known(setting.crossover_concurrency).value == pytest.approx(41.5, rel=0.05)


def test_a_load_that_one_k_missed_is_interpolated() -> None:
    """Its neighbours tell: one recording of k = 6 has a load that the one of k = 3 does not have."""
    server = Server()
    found = [server.record(0), server.record(3, [load for load in LOADS if load != 15.0]), server.record(6)]
    best = {each.concurrency_bound: each for each in tune(*found).best[0].by_load}
    assert set(best) == {1, 4, 8, 16, 32, 64}
    assert [len(each.costs) for each in best.values()] == [1] * 6
    assert server.speedup(known(best[16].choice.recommended), 15.0) >= 0.97 * server.speedup(server.best(15.0, 6), 15.0)


# --- Methods ----------------------------------------------------------------------------------------------------------


def test_the_better_method_is_named_if_it_is_better_beyond_chance() -> None:
    plain = loaded("plain", {8.0: 0.02})
    eagle, ngram = loaded("eagle", {8.0: 0.024}, CODE), loaded("ngram", {8.0: 0.025}, (0.3,), method="ngram")
    (advice,) = tune(plain, ngram, eagle).advice
    assert (advice.code, advice.method, advice.best_method) == ("use", "eagle3", True)
    assert any(reason.startswith("ngram with k = 1 is slower") for reason in advice.reasons)


def test_methods_within_chance_of_each_other_are_told() -> None:
    plain = loaded("plain", {8.0: 0.02})
    found = [loaded(name, {8.0: 0.024}, CODE, method=name, noise=0.1) for name in ("eagle3", "mtp")]
    (advice,) = tune(plain, *found).advice
    assert (advice.code, advice.best_method) == ("use", False)
    assert any("is within chance of it" in reason for reason in advice.reasons)


def test_a_drafter_with_a_fixed_k_is_on_or_off() -> None:
    policy = load_policy()
    block = replace(policy, methods={**policy.methods, "dflash": replace(policy.methods["dflash"], fixed_k=True)})
    curve = (0.6, 0.3, 0.1, 0.05)
    for step, k in ((0.026, 4), (0.05, 0)):
        found = tune_by_policy(
            [loaded("plain", {8.0: 0.02}), loaded("dflash", {8.0: step}, curve, method="dflash")], block
        )
        assert found.best[0].by_load[0].choice.recommended == k
        assert {each.k for each in found.best[0].by_load[0].choice.expected} == {4}


def test_without_a_method_there_is_a_k_but_no_configuration() -> None:
    (advice,) = tune(loaded("plain", {8.0: 0.02}), loaded("k3", {8.0: 0.025}, CODE, method=None)).advice
    assert (advice.code, advice.num_speculative_tokens, advice.speculative_config) == ("use", 3, None)
    assert advice.action == "Run the method with k = 3."
    assert advice.reasons[-1] == "the method is not known: record with --predictor.log-path"


def test_the_best_k_is_named_and_that_chance_may_have_made_it_best() -> None:
    server = Server(fixed=0.1, marginal=0.08, growth=0.0, curve=(0.5, 0.3, 0.05))
    found = [server.record(k, [8.0], name=f"k{k}", noise=0.3, intervals=8) for k in (0, 1, 3)]
    tuning = tune(*found)
    (advice,), (best,) = tuning.advice, tuning.best[0].by_load
    assert (best.choice.recommended, best.choice.within_chance) == (advice.num_speculative_tokens, True)
    assert best.choice.candidates == (advice.num_speculative_tokens,)
    assert f"k = {advice.num_speculative_tokens} looks better than k = 3, but not beyond chance" in advice.reasons


def test_off_is_not_advised_by_chance() -> None:
    scattered: dict[str, Any] = {"noise": 0.3, "intervals": 6}
    found = [loaded("plain", {8.0: 0.02}, **scattered), loaded("poor", {8.0: 0.0235}, (0.05,), **scattered)]
    (advice,) = tune(*found).advice
    assert (advice.code, advice.num_speculative_tokens, advice.speculative_config) == ("undecided", 0, None)
    assert re.fullmatch(r"Whether eagle3 pays at 8.0 running is not decided: 0.\d\dx .* with k = 1", advice.headline)
    assert "no speculation looks better than k = 1, but not beyond chance" in advice.reasons


def test_measured_harm_says_off() -> None:
    (advice,) = tune(loaded("plain", {8.0: 0.02}), loaded("poor", {8.0: 0.03}, (0.05, 0.01))).advice
    assert (advice.code, advice.num_speculative_tokens, advice.speculative_config) == ("off", 0, None)
    assert "slower than no speculation at 8.0 running: 0.71x" in advice.headline


# --- What is not known ------------------------------------------------------------------------------------------------


def test_without_a_plain_recording_nothing_is_recommended() -> None:
    tuning = tune(loaded("code", {8.0: 0.025}, CODE), loaded("k1", {8.0: 0.022}, CODE[:1]))
    assert "no_plain_recording" in codes(tuning)
    assert {each.code for each in tuning.advice} == {"unknown"}
    assert {each.whole.speedup for each in tuning.settings} == {None}
    assert {each.rule for each in tuning.recordings} == {None}


def test_older_files_give_an_estimate_that_decides_nothing() -> None:
    plain, code = recording("plain", tpot=[1 / 47.84] * 300), recording("code", tpot=[1 / 88.25] * 300, curve=CODE)
    tuning = tune(plain, code)
    (setting,), (advice,) = tuning.settings, tuning.advice
    assert setting.whole.estimated
    assert known(setting.whole.speedup).value == pytest.approx(1.84, abs=0.01)
    price = known(setting.whole.draft_cost_ratio)
    assert price.value == pytest.approx(0.07, abs=0.005)
    assert (price.low, price.high, setting.whole.pays, advice.code) == (None, None, None, "unknown")
    assert [flag.recording for flag in tuning.flags if flag.code == "no_loads"] == ["plain", "code"]


@pytest.mark.parametrize(
    ("found", "code"),
    [
        ([loaded("plain", {8.0: 0.02}), loaded("k3", {60.0: 0.03}, CODE)], "no_like_load"),
        ([loaded("plain", {8.0: 0.02}), loaded("k3", {8.0: 0.02}, CODE, tokens_per_answer=64)], "prompt_rate_differs"),
        ([loaded("plain", {8.0: 0.02}), loaded("k3", {8.0: 0.02}, method="ngram")], "drafted_nothing"),
        ([loaded("plain", {8.0: 0.02}), loaded("k3", {8.0: 0.02}, CODE, num_speculative_tokens=5)], "short_drafts"),
        ([loaded("plain", {8.0: 0.02}), loaded("k3", {8.0: 0.02}, method="ngram")], "k_not_known"),
        ([loaded("plain", {8.0: 0.02}), loaded("k3", {8.0: 0.02}, CODE, interrupted=True)], "interrupted"),
        (
            [
                loaded("one", {8.0: 0.02}, **requests("one")),
                loaded("two", {8.0: 0.02}, **requests("two")),
                loaded("k3", {8.0: 0.02}, CODE, **requests("three")),
            ],
            "no_plain_workload",
        ),
        (
            [
                loaded("plain", {8.0: 0.02}),
                loaded("k3", {8.0: 0.02}, CODE, context=replace(CONTEXT, hardware="8 x H100", runtime=None)),
            ],
            "hardware_differs",
        ),
    ],
)
def test_what_is_not_like_for_like_is_flagged(found: list[Baseline], code: str) -> None:
    tuning = tune(*found)
    assert code in codes(tuning)
    assert all(flag.message and flag.action for flag in tuning.flags)


def test_more_requests_of_a_faster_server_are_the_same_requests() -> None:
    assert codes(tune(loaded("plain", {8.0: 0.02}), loaded("k3", {8.0: 0.02}, CODE))) <= {
        "too_few_requests",
        "no_blocks",
    }


def test_two_models_are_refused_by_name() -> None:
    other = loaded("other", {8.0: 0.02}, CODE, context=replace(CONTEXT, model="Qwen/Qwen3-8B"))
    with pytest.raises(ComparisonError, match=r"expected recordings of one model, found model .* in plain and .* in o"):
        tune(loaded("plain", {8.0: 0.02}), other)
    with pytest.raises(ComparisonError, match="expected at least one recording, found none"):
        tune()


# --- The rule ---------------------------------------------------------------------------------------------------------


def drawn(median: float, seed: int, count: int = 1000) -> list[float]:
    source = random.Random(seed)
    return [median * source.lognormvariate(0.0, 0.3) for _ in range(count)]


@pytest.mark.parametrize(
    ("first", "per_token", "step", "code", "headline"),
    [
        (0.03, 0.012, 0.025, "keep", "Time to first token, time per output token and throughput all improve"),
        (0.03, 0.012, 0.0446, "undecided", "Not shown to improve: throughput"),
        (0.05, 0.012, 0.025, "undecided", "Not shown to improve: time to first token"),
        (0.09, 0.012, 0.025, "do_not_keep", "Not all improve: worse in time to first token"),
        (0.03, 0.012, 0.06, "do_not_keep", "Not all improve: worse in throughput"),
    ],
)
def test_speculation_is_kept_only_if_all_three_improve(
    first: float, per_token: float, step: float, code: str, headline: str
) -> None:
    plain, candidate = loaded("plain", {8.0: 0.02}, intervals=60), loaded("k3", {8.0: step}, CODE, intervals=60)
    latencies = [
        recording(tpot=drawn(0.02, 1), ttft=drawn(0.05, 2)),
        recording(tpot=drawn(per_token, 3), ttft=drawn(first, 4)),
    ]
    found = [
        replace(
            each,
            time_to_first_token_seconds=latency.time_to_first_token_seconds,
            time_per_output_token_seconds=latency.time_per_output_token_seconds,
        )
        for each, latency in zip((plain, candidate), latencies, strict=True)
    ]
    rule = known(tune(*found).recordings[1].rule)
    assert (rule.code, rule.headline) == (code, headline)
    assert rule.regression is (code == "do_not_keep")


def test_where_clients_set_the_rate_the_speedup_at_like_load_is_the_throughput() -> None:
    """The same tokens per second, with fewer requests in flight."""
    plain = loaded("plain", {8.0: 0.02, 4.0: 0.02}, intervals=60)
    candidate = loaded("k3", {8.0 * 1.25 / 2.23: 0.025}, CODE, intervals=90)
    rule = known(tune(replace(plain, by_load=plain.by_load), candidate).recordings[1].rule)
    assert known(rule.throughput_ratio).value == pytest.approx(4 / 3, rel=0.02)
    same = loaded("k3", {6.0 * 1.25 / 2.23: 0.025}, CODE, intervals=90)
    rule = known(tune(plain, same).recordings[1].rule)
    assert known(rule.throughput_ratio).value == pytest.approx(1.0, rel=0.02)
    assert (rule.throughput, rule.throughput_at_like_load) == ("faster", True)


def test_the_rule_is_applied_at_the_nearest_request_rate() -> None:
    plain = [loaded(f"plain at {load:.0f}", {load: 0.02}) for load in (1.0, 16.0)]
    near = loaded("k3", {10.0: 0.025}, CODE)
    assert known(tune(*plain, near).recordings[-1].rule).against == "plain at 16"


# --- Whatever was recorded --------------------------------------------------------------------------------------------


@given(st.lists(recordings(), min_size=1, max_size=3), st.randoms())
@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_any_recordings_give_a_result_or_an_error_in_words(found: list[Baseline], source: random.Random) -> None:
    shuffled = source.sample(found, len(found))
    try:
        tuning = tune(*found)
    except ComparisonError:
        return
    assert as_json(tune(*shuffled)) == as_json(tuning)
    found_here = msgspec.to_builtins((tuning.settings, tuning.best, tuning.advice, tuning.rows, tuning.limits))
    assert all(math.isfinite(number) for number in numbers(found_here))
    assert json.loads(as_json(tuning), parse_constant=pytest.fail)["recordings"]
    text = printed(tuning).splitlines()
    assert max(cell_len(line) for line in text if not line.startswith("--speculative-config")) <= 80
    assert as_markdown(tuning).startswith("# Recordings side by side\n")


def test_a_file_gives_the_same_as_the_recording() -> None:
    server = Server()
    found = [server.record(k, intervals=20) for k in (0, 2, 5)]
    read = [parse_baseline(to_yaml(each).encode()) for each in found]
    tuning = tune(*read)
    assert [each.choice for each in tuning.best[0].by_load] == [
        replace(each.choice, expected=read_back.choice.expected)
        for each, read_back in zip(tune(*found).best[0].by_load, tuning.best[0].by_load, strict=True)
    ]
    assert msgspec.json.decode(as_json(tuning), type=Tuning) == tuning


# --- Printed ----------------------------------------------------------------------------------------------------------


def printed(tuning: Tuning, width: int = 80) -> str:
    console = Console(width=width, markup=False, emoji=False, highlight=False, color_system=None)
    with console.capture() as captured:
        print_tuning(console, tuning)
    return "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines())


def example() -> Tuning:
    server = Server(marginal=0.1)
    facts = requests("ShareGPT, temperature 0", command=COMMAND)
    kept = {**facts, "noise": 0.01}
    return tune(
        server.record(0, (1.8, 12.0, 50.0), name="plain", **facts),
        server.record(2, (1.8, 12.0, 50.0), name="eagle3-k2", **kept),
        server.record(4, (1.8, 12.0, 50.0), name="eagle3-k4", **kept),
        loaded("ngram", {12.0: 0.03}, (0.3, 0.1), method="ngram", **requests("ShareGPT, temperature 0")),
    )


def test_the_text_is_as_in_the_golden_file(request: pytest.FixtureRequest) -> None:
    golden = REPOSITORY / "tests" / "golden" / "tune.txt"
    if request.config.getoption("--update-golden"):
        golden.write_text(printed(example()), encoding="utf-8")
    assert printed(example()) == golden.read_text(encoding="utf-8")


def test_the_markdown_has_everything_that_a_reader_needs_to_repeat_it() -> None:
    text = as_markdown(example())
    for fact in (CONTEXT.hardware, CONTEXT.model, CONTEXT.runtime, "ShareGPT, temperature 0"):
        assert f"| {fact} |" in text
    assert text.count(f"```\n{COMMAND}\n```") == 3
    assert "```\n--speculative-config '{" in text
    for table in re.findall(r"^\|.*(?:\n\|.*)+", text, re.MULTILINE):
        assert len({line.count("|") for line in table.splitlines()}) == 1


# --- docs/compare.md --------------------------------------------------------------------------------------------------


def test_every_key_flag_and_code_is_documented() -> None:
    page = (REPOSITORY / "docs" / "compare.md").read_text(encoding="utf-8")
    section = page[page.index("## More than two recordings") :]
    shapes = (Tuning, Recorded, Setting, BestByLoad, BestK, Advice, AtLoad, Rule, TuningFlag, Row, Limit, Overall)
    keys = {name for shape in (*shapes, KChoice, StepCost, ExpectedSpeedup) for name in shape.__struct_fields__}
    values = {*get_args(TuningFlagCode), *get_args(AdviceCode), *get_args(RuleCode), *get_args(Along), "mixed"}
    missing = {word for word in keys | values if f"`{word}`" not in section}
    assert not missing
