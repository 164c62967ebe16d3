"""The verdict says what is proved, with the numbers that prove it and a next step."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from specdec_exporter.histogram import Histogram
from specdec_exporter.predictor.facts.deployment import Deployment
from specdec_exporter.speculation.acceptance import Counts
from specdec_exporter.speculation.evidence import DecodingBaseline, Evidence, StateName
from specdec_exporter.speculation.figures import Figures, figures
from specdec_exporter.speculation.findings import curve_finding
from specdec_exporter.speculation.judging import judge
from specdec_exporter.speculation.policy import Levels, load_policy
from specdec_exporter.speculation.verdict import Verdict, VerdictCode
from support.builders import known

POLICY = load_policy()
# How bad, by what is known of a service that drafts.
RANK: dict[VerdictCode, float] = {
    "healthy": 0,
    "not_measured": 0,
    "watch": 1,
    "slower": 1.5,
    "not_paying": 2,
    "harmful": 3,
    "broken": 4,
}


def drafted(
    rate: float,
    *,
    k: int = 3,
    drafts: float = 1000,
    curve: tuple[float, ...] | None = None,
    seconds: float | None = None,
    requests: float = 1000,
) -> Figures:
    """Figures of full drafts; ``curve`` is accepted at the position / drafts, flat by default."""
    positions = tuple(drafts * share for share in (curve or (rate,) * k))
    counts = Counts(
        drafts=drafts,
        draft_tokens=drafts * k,
        accepted_tokens=rate * drafts * k,
        accepted_per_position=positions,
        timed_requests=None if seconds is None else requests,
        output_token_seconds=None if seconds is None else seconds * requests,
    )
    return figures(counts, k, "metrics", 300.0)


def without_speculation(seconds: float, requests: float = 5000) -> DecodingBaseline:
    return DecodingBaseline(mean_seconds=seconds, requests=requests, speculative=False)


def judged(
    state: StateName,
    seen: Figures | None,
    name: str | None,
    k: int,
    baseline: DecodingBaseline | None = None,
) -> Verdict:
    evidence = Evidence(state=state, figures=seen, method=name, num_speculative_tokens=k, baseline=baseline)
    return judge(evidence, POLICY).verdict


METHODS = (None, "eagle3", "mtp", "dflash", "draft_model", "ngram", "a_method_of_tomorrow")


def levels(name: str | None, k: float | None = 3, load: float | None = None) -> Levels:
    return POLICY.assumed.levels(name, k, load)


# --- by acceptance ---


@pytest.mark.parametrize(
    ("name", "k", "load", "rate", "told"),
    [
        (None, 3, None, 0.05, "broken"),
        ("eagle3", 3, None, 0.11, "watch: May lose"),
        ("eagle3", 3, None, 0.13, "watch: May pay"),
        ("eagle3", 3, None, 0.37, "watch: May pay"),  # it may be a large batch
        ("eagle3", 3, None, 0.66, "not_measured: Probably pays"),
        ("eagle3", 3, 3.0, 0.37, "not_measured: Probably pays"),
        ("eagle3", 3, 200.0, 0.37, "watch: May lose"),
        ("eagle3", 3, 200.0, 0.51, "watch: May pay"),
        ("eagle3", 3, 200.0, 0.66, "not_measured: Probably pays"),
        ("mtp", 1, 200.0, 0.99, "watch: May pay"),  # a published service lost with 0.65
        (None, 3, None, 0.64, "watch: May pay"),  # a method that is not known may be a dear one
        ("ngram", 5, None, 0.29, "watch: May lose"),
        ("ngram", 5, None, 0.4, "watch: May pay"),
        ("dflash", 15, None, 0.03, "broken"),
        ("dflash", 15, None, 0.08, "watch: May lose"),  # 1.3 tokens of each draft are not almost nothing
        ("dflash", 15, None, 0.095, "watch: May pay"),  # 2.4 tokens a draft are not almost nothing
        ("a_method_of_tomorrow", 3, None, 0.6, "watch: May pay"),
    ],
)
def test_acceptance_is_judged_by_method_k_and_load(
    name: str | None, k: int, load: float | None, rate: float, told: str
) -> None:
    verdict = judged("drafting", replace(drafted(rate, k=k), concurrency=load), name, k)
    code, _, word = told.partition(": ")
    assert verdict.code == code
    assert not word or verdict.headline.startswith(f"{word}: {1 + k * rate:.2f} tokens a draft; ")
    assert f"acceptance {rate:.1%}" in " ".join(verdict.reasons)
    assert verdict.action


ANY_LOAD = st.none() | st.floats(0, 1e4)


@given(rate=st.floats(0, 1), k=st.integers(1, 16), name=st.sampled_from(METHODS), load=ANY_LOAD)
def test_a_length_below_break_even_is_never_healthy_and_nothing_loses_on_a_guess(
    rate: float, k: int, name: str | None, load: float | None
) -> None:
    seen = replace(drafted(rate, k=k), concurrency=load)
    verdict = judged("drafting", seen, name, k)
    assert seen.mean_acceptance_length is not None
    assumed = levels(name, k, load)
    gain = seen.mean_acceptance_length - (1 + k * assumed.min)
    assert verdict.code in ("broken", "watch") or gain > -1e-9
    assert verdict.code in ("broken", "watch", "not_measured")
    broken = min(POLICY.acceptance_ratio_broken, assumed.min, POLICY.accepted_tokens_broken / k)
    assert (verdict.code == "broken") == (rate < broken)
    assert verdict.basis == "assumed"


@given(
    k=st.none() | st.floats(0, 1e4),
    more=st.floats(0, 16),
    load=st.floats(0, 1e4),
    busier=st.floats(1, 100),
    name=st.sampled_from(METHODS),
)
def test_break_even_falls_with_k_and_rises_with_load(
    k: float | None, more: float, load: float, busier: float, name: str | None
) -> None:
    here, light = levels(name, k, load), levels(name, k, None)
    assert 0 < light.min <= here.min <= levels(name, k, load * busier).min < 1
    assert light.watch >= levels(name, k, load * busier).watch
    assert here.min <= here.watch
    assert levels(name, (k or 1) + more, load).min <= here.min


@given(
    one=st.floats(0, 1),
    other=st.floats(0, 1),
    name=st.sampled_from(METHODS),
    seconds=st.sampled_from([None, 0.01, 0.02, 0.03]),
)
def test_a_higher_acceptance_is_never_judged_worse(
    one: float, other: float, name: str | None, seconds: float | None
) -> None:
    low, high = sorted((one, other))
    codes = [
        judged("drafting", drafted(rate, seconds=seconds), name, 3, without_speculation(0.02)).code
        for rate in (low, high)
    ]
    assert RANK[codes[1]] <= RANK[codes[0]]


def test_few_drafts_are_no_verdict() -> None:
    assert judged("drafting", drafted(0.9, drafts=POLICY.min_drafts - 1), None, 3).code == "unknown"
    worth_nine, worth_ten = (judged("drafting", drafted(0.9, drafts=drafts), None, 3) for drafts in (150, 160))
    assert (worth_nine.code, worth_nine.headline) == ("unknown", "Too few drafts for a verdict")
    assert worth_ten.code == "not_measured"
    assert judged("drafting", None, None, 3).code == "unknown"


def test_text_that_repeats_itself_is_pointed_at() -> None:
    reasons = " ".join(judged("drafting", drafted(0.995), None, 3).reasons)
    assert "repeats itself" in reasons
    assert "repeats itself" not in " ".join(judged("drafting", drafted(0.995, k=1), None, 1).reasons)


@given(rate=st.floats(0, 1), k=st.integers(1, 16), name=st.sampled_from(METHODS), load=ANY_LOAD)
def test_nobody_is_told_to_switch_off_or_to_lower_k_on_a_guess_and_no_head_is_blamed_above_break_even(
    rate: float, k: int, name: str | None, load: float | None
) -> None:
    verdict = judged("drafting", replace(drafted(rate, k=k), concurrency=load), name, k)
    words = " ".join((verdict.headline, *verdict.reasons, verdict.action)).lower()
    assert "switch" not in words
    assert "lower k" not in words
    assert "record a baseline without speculation" in verdict.action
    if rate >= levels(name, k, load).min:
        assert "head" not in words
        assert "lose" not in words


def test_the_flag_of_the_guides_is_a_remark_and_changes_no_word() -> None:
    below, above = (
        judged("drafting", replace(drafted(rate, k=5), concurrency=1.0), "eagle3", 5) for rate in (0.49, 0.5)
    )
    assert (below.code, above.code) == ("not_measured", "not_measured")
    assert any("below 50%, which is shown and alerts nobody" in reason for reason in below.reasons)
    assert not any("flag" in reason for reason in above.reasons)


@pytest.mark.parametrize(
    ("curve", "words"),
    [
        ((0.2, 0.1, 0.05), "wrong from their first token"),
        ((0.32, 0.02, 0.01), "position 1 almost never (6.2%)"),
        ((0.9, 0.8, 0.7), None),
    ],
)
def test_a_curve_that_is_lost_early_is_a_reason(curve: tuple[float, ...], words: str | None) -> None:
    seen = drafted(sum(curve) / 3, curve=curve)
    remark = curve_finding(seen, POLICY)
    assert (remark is None) is (words is None)
    if words is not None and remark is not None:
        assert words in remark.found
        assert remark.found in judged("drafting", seen, None, 3).reasons


def test_a_lost_curve_is_told_to_check_its_head_only_where_drafts_may_lose() -> None:
    lost = drafted(0.06, k=15, curve=(0.88, 0.02, *(0.0,) * 13))
    assert known(known(curve_finding(lost, POLICY)).action).startswith("Check that the draft head fits")
    quick = replace(lost, time_per_output_token_seconds=0.01, timed_requests=1000.0)
    for seen, baseline, told in ((lost, None, ["WARN"]), (quick, without_speculation(0.02), [])):
        evidence = Evidence(
            state="drafting", figures=seen, method="dflash", num_speculative_tokens=15, baseline=baseline
        )
        levels_of = [each.level for each in judge(evidence, POLICY).findings if each.subject == "Curve"]
        assert levels_of == told


# --- what the operator's arguments say ---


def test_lossy_rejection_sampling_is_named_and_changes_no_verdict() -> None:
    evidence = Evidence(state="drafting", figures=drafted(0.9), method="mtp", num_speculative_tokens=3)
    plain = judge(evidence, POLICY)
    lossy = judge(msgspec.structs.replace(evidence, deployment=Deployment(rejection_sample_method="fly")), POLICY)
    assert lossy.verdict.code == plain.verdict.code == "not_measured"
    words = "rejection sampling is lossy (fly): answers may differ from the target's"
    assert lossy.verdict.reasons == (*plain.verdict.reasons, words)


# --- by time, against a baseline ---


@pytest.mark.parametrize(
    ("rate", "seconds", "speculative", "code"),
    [
        (0.8, 0.010, False, "healthy"),  # twice as fast
        (0.8, 0.020, False, "not_paying"),  # accepted, and no faster
        (0.8, 0.030, False, "harmful"),  # accepted, and slower
        (0.05, 0.010, False, "healthy"),
        (0.8, 0.030, True, "slower"),
        (0.8, 0.022, True, "not_measured"),
        (0.11, 0.030, True, "harmful"),
        (0.3, 0.030, True, "slower"),
        (0.3, 0.010, True, "watch"),
    ],
)
def test_time_measured_against_a_baseline_is_stronger_than_acceptance(
    rate: float, seconds: float, speculative: bool, code: str
) -> None:
    baseline = DecodingBaseline(mean_seconds=0.02, requests=5000, speculative=speculative)
    verdict = judged("drafting", drafted(rate, seconds=seconds), None, 3, baseline)
    assert verdict.code == code
    told = f"{seconds / 0.02:.2f} times the baseline's" if code == "slower" else f"speed-up {0.02 / seconds:.2f}"
    assert told in verdict.reasons[0]
    assert verdict.action


@pytest.mark.parametrize(
    ("more_requests", "more_tokens", "rate", "seconds", "code"),
    [
        (2.0, 2.0, 0.8, 0.030, "not_measured"),  # by acceptance
        (2.0, 2.0, 0.3, 0.010, "healthy"),  # faster even so
        (1.1, 1.1, 0.8, 0.030, "harmful"),  # more in decode alone: it is slower
        (2.0, 0.7, 0.8, 0.030, "harmful"),  # not more in decode
    ],
)
def test_more_load_than_at_baseline_explains_a_slower_service(
    more_requests: float, more_tokens: float, rate: float, seconds: float, code: str
) -> None:
    seen = msgspec.structs.replace(drafted(rate, seconds=seconds), generation_tokens=50_000.0)
    assert seen.timed_requests
    assert seen.seconds
    baseline = DecodingBaseline(
        mean_seconds=0.02,
        requests=10 * seen.timed_requests,
        speculative=False,
        seconds=10 * seen.seconds * more_requests,
        generation_tokens=10 * 50_000.0 * more_requests / more_tokens,
    )
    assert judged("drafting", seen, None, 3, baseline).code == code


def asking(prompt_tokens: float, requests: float, **more: Any) -> Figures:
    """Figures of requests with prompts of this mean length."""
    return replace(drafted(0.8, **more), mean_prompt_tokens=prompt_tokens, requests=requests)


@pytest.mark.parametrize("speculative", [False, True])
@pytest.mark.parametrize(
    ("now", "words"),
    [
        (6400.0, "prompts are 3.2 times as long as those of the baseline (6,400 tokens, there 2,000)"),
        (3010.0, "prompts are 1.5 times as long as those of the baseline (3,010 tokens, there 2,000)"),
        (500.0, "prompts are 0.25 times as long as those of the baseline (500 tokens, there 2,000)"),
        (2900.0, None),
        (1400.0, None),
    ],
)
def test_a_verdict_against_a_baseline_of_other_prompts_says_so(
    now: float, words: str | None, speculative: bool
) -> None:
    baseline = DecodingBaseline(0.02, 5000, speculative=speculative, mean_prompt_tokens=2000.0)
    unknown = replace(baseline, mean_prompt_tokens=None)
    seen = asking(now, 300, seconds=0.015)
    evidence = Evidence(state="drafting", figures=seen, num_speculative_tokens=3, baseline=baseline)
    judgement, plain = judge(evidence, POLICY), judge(replace(evidence, baseline=unknown), POLICY)
    found = [finding for finding in judgement.findings if finding.subject == "Prompt length"]
    assert [finding.found for finding in found] == (
        [f"{words}: its speed was recorded with other prompts"] if words else []
    )
    assert all(finding.level == "WARN" and finding.action for finding in found)
    assert judgement.verdict.reasons == tuple(finding.found for finding in judgement.findings)
    assert judgement.verdict.code == plain.verdict.code
    assert not [finding for finding in plain.findings if finding.subject == "Prompt length"]


@pytest.mark.parametrize(
    ("now", "then", "differ"), [(0.8, 0.02, True), (0.02, 0.8, True), (0.5, 0.45, False), (None, 0.8, False)]
)
def test_a_verdict_against_a_baseline_with_another_cache_says_so(now: float | None, then: float, differ: bool) -> None:
    baseline = DecodingBaseline(0.02, 5000, speculative=False, cached_prompt_ratio=then)
    seen = replace(asking(2000.0, 300, seconds=0.015), cached_prompt_ratio=now)
    judgement = judge(Evidence(state="drafting", figures=seen, num_speculative_tokens=3, baseline=baseline), POLICY)
    found = [finding for finding in judgement.findings if finding.subject == "Prefix cache"]
    words = f"a prefix cache held {now:.0%} of the prompt tokens now, {then:.0%} in the baseline" if differ else ""
    assert [finding.found for finding in found] == ([words] if differ else [])
    assert all("computed prompt tokens only" in str(finding.action) for finding in found)


def test_a_few_requests_tell_nothing_of_the_length_of_prompts() -> None:
    baseline = DecodingBaseline(0.02, 5000, speculative=False, mean_prompt_tokens=2000.0)
    verdict = judged("drafting", asking(9000.0, 9, seconds=0.015), None, 3, baseline)
    assert not [reason for reason in verdict.reasons if "prompts" in reason]


def test_harm_must_be_more_than_chance() -> None:
    few = drafted(0.3, seconds=0.03, requests=8)
    assert judged("drafting", few, None, 3, without_speculation(0.02)).code == "watch"
    small_baseline = without_speculation(0.02, requests=5)
    assert judged("drafting", drafted(0.3, seconds=0.03), None, 3, small_baseline).code == "not_paying"
    assert judged("drafting", drafted(0.3, seconds=0.03), None, 3, without_speculation(0.02)).code == "harmful"


@pytest.mark.parametrize("seconds", [None, 0.0])
def test_a_baseline_without_times_to_compare_changes_nothing(seconds: float | None) -> None:
    seen = drafted(0.8, seconds=seconds)
    assert judged("drafting", seen, None, 3, without_speculation(0.02)) == judged("drafting", seen, None, 3)


@pytest.mark.parametrize(
    ("state", "code"),
    [
        ("unreachable", "no_metrics"),
        ("stats_disabled", "no_metrics"),
        ("speculation_off", "off"),
        ("idle", "idle"),
        ("not_drafting", "watch"),
    ],
)
def test_without_drafts_the_state_is_the_verdict(state: str, code: str) -> None:
    verdict = judged(state, drafted(0.01), None, 3)  # type: ignore[arg-type]
    assert verdict.code == code
    assert verdict.action


# --- slower than before, for other reasons than drafts ---

BEFORE = DecodingBaseline(mean_seconds=0.02, requests=5000, speculative=True, mean_acceptance_length=3.4)


@pytest.mark.parametrize(
    ("rate", "headline"),
    [
        (0.8, "Slower than before, not because of drafts"),
        (0.55, "Slower than before, not because of drafts"),  # 3.4 / 2.65 explains 1.28 times
        (0.52, "Slower than before: fewer draft tokens are accepted"),
    ],
)
def test_a_slower_service_says_whether_drafts_are_why(rate: float, headline: str) -> None:
    verdict = judged("drafting", drafted(rate, seconds=0.0304), None, 3, BEFORE)
    assert (verdict.code, verdict.basis, verdict.headline) == ("slower", "measured", headline)
    assert verdict.reasons[0] == "time per output token 30.4 ms over 1,000 requests, 1.52 times the baseline's"
    assert "speed-up" not in " ".join(verdict.reasons)


def test_a_speed_up_that_pays_does_not_hide_a_longer_tail_and_is_named() -> None:
    times = Histogram((0.01, 0.025, 0.05, math.inf), (1000.0, 4900.0, 5000.0, 5000.0), 100.0)
    before = msgspec.structs.replace(without_speculation(0.02), times=times)
    tail = msgspec.structs.replace(
        drafted(0.8, seconds=0.0125), timed_within=((0.01, 700.0), (0.025, 800.0), (0.05, 1000.0))
    )
    verdict = judged("drafting", tail, None, 3, before)
    assert verdict.code == "slower"
    assert verdict.headline == "Slower than before, not because of drafts: speculation still gives 1.60x"
    assert verdict.reasons[0].endswith("and 17% of the requests, on top of those expected, exceed 25 ms")
    within = msgspec.structs.replace(tail, timed_within=((0.01, 700.0), (0.025, 900.0), (0.05, 1000.0)))
    assert judged("drafting", within, None, 3, before).code == "healthy"


@given(slowdown=st.floats(0.5, 3), requests=st.floats(1, 1e6), rate=st.floats(0, 1))
def test_a_word_is_never_within_chance_of_itself_and_slower_never_hides_a_loss(
    slowdown: float, requests: float, rate: float
) -> None:
    seen = drafted(rate, seconds=0.02 * slowdown, requests=requests)
    verdict = judged("drafting", seen, None, 3, BEFORE)
    assert verdict.code not in verdict.within_chance
    if verdict.code == "slower":
        assert rate >= levels(None).min
        assert slowdown > POLICY.latency.slower_ratio


# --- the policy ---


def test_every_method_has_levels_in_order() -> None:
    assert POLICY.assumed.rows[-1].holds("any", 1000.0)
    for row in POLICY.assumed.rows:
        for side in (row.light, row.heavy):
            assert 0 < side.min <= side.watch
