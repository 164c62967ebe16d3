"""Two recordings that speculate: whether acceptance fell, what may have caused it, and what follows."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec_exporter.baseline.file import Baseline, Block
from specdec_exporter.comparison.compare import Comparison
from specdec_exporter.errors import ComparisonError
from specdec_exporter.predictor.quantization import Quantization, quantization_of, without_precision
from specdec_exporter.speculation.chance import proportion
from specdec_exporter.speculation.figures import PARTLY_VERIFIED
from specdec_exporter.terminal.comparison import report
from specdec_exporter.terminal.sections import as_markdown
from support.builders import known
from support.recordings import CONTEXT, codes, compared, loaded, recording

GOOD = (0.8, 0.7, 0.6)  # 70 %
SETTINGS = "settings_differ"


def speculating(acceptance: float, tpot: float = 0.0113, **changes: Any) -> Baseline:
    curve = tuple(rate + acceptance - 0.7 for rate in GOOD)
    context = msgspec.structs.replace(CONTEXT, **changes)
    return recording(f"at {acceptance:.2f}", tpot=[tpot] * 1000, curve=curve, context=context, blocks=12)


def dropped(comparison: Comparison) -> bool:
    return any("drop beyond chance" in reason for reason in comparison.decision.reasons)


@pytest.mark.parametrize(("acceptance", "fell"), [(0.70, False), (0.69, False), (0.62, True), (0.9, False)])
def test_a_drop_of_more_than_five_points_is_found(acceptance: float, *, fell: bool) -> None:
    comparison = compared(speculating(0.7), speculating(acceptance))
    assert known(comparison.acceptance_change).value == pytest.approx(acceptance - 0.7)
    assert dropped(comparison) is fell
    assert comparison.decision.regression is fell
    assert ("Fewer draft tokens are accepted" in comparison.decision.action) is fell
    assert any(reason.startswith("acceptance: ") for reason in comparison.decision.reasons)


ADAPTIVE = f"""{CONTEXT.command} --speculative-config '{{"enable_adaptive_verification": true}}'"""


@pytest.mark.parametrize("sides", [("baseline",), ("candidate",), ("baseline", "candidate")])
def test_drafts_of_which_only_part_is_verified_have_no_acceptance_to_compare(sides: tuple[str, ...]) -> None:
    """As counted, acceptance falls from 70 % to 40 %; nothing says that it did."""
    pair = {name: speculating(rate) for name, rate in (("baseline", 0.7), ("candidate", 0.4))}
    full = compared(pair["baseline"], pair["candidate"])
    assert dropped(full)
    for name in sides:
        pair[name] = msgspec.structs.replace(pair[name], context=msgspec.structs.replace(CONTEXT, command=ADAPTIVE))
    comparison = compared(pair["baseline"], pair["candidate"])
    assert comparison.acceptance_change is None
    assert not comparison.decision.regression
    (flag,) = (flag for flag in comparison.flags if flag.code == "partly_verified")
    assert flag.message == f"{' and '.join(sides)}: {PARTLY_VERIFIED}"
    for name in ("baseline", "candidate"):
        shown, before = getattr(comparison, name), getattr(full, name)
        assert shown.mean_acceptance_length == before.mean_acceptance_length is not None
        assert known(shown.figures).tokens_per_step == known(before.figures).tokens_per_step
        if name in sides:
            assert (shown.acceptance_ratio, known(shown.figures).acceptance_ratio) == (None, None)
            assert known(shown.figures).per_position == known(before.figures).per_position[:1]
    assert PARTLY_VERIFIED in as_markdown(report(comparison))


def test_the_cost_of_a_draft_is_unknown_where_only_part_was_verified() -> None:
    """It is per draft token as counted. The measured speed-up and the length that breaks even stay."""
    plain = loaded("plain", {8.0: 0.02}, intervals=60, blocks=12)
    curve, steps = (0.5, 0.05, 0.01), {8.0: 0.04}
    full = loaded("drafting", steps, curve, intervals=60, blocks=12)
    partly = msgspec.structs.replace(full, context=msgspec.structs.replace(CONTEXT, command=ADAPTIVE))
    before, after = (compared(plain, each).speedup for each in (full, partly))
    assert before.break_even_acceptance_ratio is not None
    assert after.break_even_acceptance_ratio is None
    assert after.at_like_load == before.at_like_load
    assert after.break_even_acceptance_length == before.break_even_acceptance_length is not None


def test_acceptance_that_wanders_with_the_hour_shows_no_drop() -> None:
    """Blocks of 40 % and 90 % in turn: as many drafts tell less."""

    def wandering(of: Baseline) -> Baseline:
        def accepting(block: Block, share: float) -> Block:
            accepted = share * known(block.counts.draft_tokens)
            return msgspec.structs.replace(
                block, counts=msgspec.structs.replace(block.counts, accepted_tokens=accepted)
            )

        blocks = tuple(accepting(block, 0.9 if i % 4 > 1 else 0.4) for i, block in enumerate(of.blocks))
        return msgspec.structs.replace(of, blocks=blocks)

    before, after = speculating(0.7), speculating(0.62)
    assert dropped(compared(before, after))
    assert not dropped(compared(wandering(before), wandering(after)))


def test_without_blocks_of_time_no_drop_is_shown() -> None:
    before, after = (msgspec.structs.replace(speculating(rate), blocks=()) for rate in (0.7, 0.5))
    assert not dropped(compared(before, after))


def test_a_drop_beside_faster_answers_is_told_and_no_regression() -> None:
    """A quantised target answers faster although fewer drafts are accepted."""
    quantised = speculating(0.6, tpot=0.007, command=f"{CONTEXT.command} --quantization awq")
    comparison = compared(speculating(0.7), quantised)
    assert dropped(comparison)
    decision = comparison.decision
    assert (decision.code, decision.regression) == ("faster", False)
    assert "acceptance changed by -10.0 pp" in decision.headline
    assert "quantisation of the target model: none named in the baseline, awq in the candidate" in as_markdown(
        report(comparison)
    )
    assert "-10.0 pp" in as_markdown(report(comparison))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": "meta-llama/Llama-3.1-8B-AWQ-INT4"}, "awq int4 in the candidate"),
        ({"command": "vllm serve x -q fp8"}, "target model: none named in the baseline, fp8"),
        (
            {"command": """vllm serve x -sc '{"model": "d", "quantization": "int8"}'"""},
            "draft model: none named in the baseline, int8",
        ),
        ({"request_parameters": "temperature 1"}, "temperature 1 in the candidate"),
    ],
)
def test_what_else_differs_is_flagged(changes: dict[str, Any], words: str) -> None:
    (flag,) = (flag for flag in compared(speculating(0.7), speculating(0.6, **changes)).flags if flag.code == SETTINGS)
    assert words in flag.message


def test_another_k_or_method_or_none_is_not_judged() -> None:
    """The fourth position is accepted less often than the first, so a larger k has a lower rate."""
    longer = recording("k = 4", tpot=[0.0113] * 1000, curve=(*GOOD, 0.1))
    ngram = msgspec.structs.replace(speculating(0.5), method="ngram")
    for other in (longer, ngram):
        comparison = compared(speculating(0.7), other)
        assert comparison.acceptance_change is None
        assert not comparison.decision.regression
    assert compared(recording("plain"), speculating(0.7)).acceptance_change is None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Qwen/Qwen3-8B", "Qwen/Qwen3-8B-AWQ"),
        ("Qwen3-8B (BF16)", "/models/Qwen3-8B-FP8"),
        ("meta-llama/Llama-3.1-8B", "neuralmagic/Llama-3.1-8B-quantized.w4a16"),
    ],
)
def test_a_quantised_model_is_the_same_model(one: str, other: str) -> None:
    assert without_precision(one.rpartition("/")[2]) == without_precision(other.rpartition("/")[2])
    found = compared(speculating(0.7, model=one), speculating(0.7, model=other))
    assert SETTINGS in codes(found)


def test_another_size_is_another_model() -> None:
    with pytest.raises(ComparisonError):
        compared(speculating(0.7, model="Qwen3-8B-FP8"), speculating(0.7, model="Qwen3-32B-FP8"))


@pytest.mark.parametrize(
    ("command", "model", "found"),
    [
        (None, None, Quantization(None, None)),
        ("vllm serve org/Llama-GPTQ-4bit", None, Quantization("4bit gptq", None)),
        ("""x -sc '{"model": "org/d-FP8", "quantization": 3}'""", "Mint8", Quantization(None, "fp8")),
        ("x 'open", "w8a8 inwards", Quantization("w8a8", None)),
    ],
)
def test_quantisation_is_read_from_flags_and_names(command: str | None, model: str | None, found: Quantization) -> None:
    assert quantization_of(command, model) == found


@given(st.floats(0, 1), st.floats(1, 1e9), st.floats(1, 1e6))
def test_a_proportion_lies_in_its_interval_and_that_in_0_to_1(share: float, trials: float, independent: float) -> None:
    found = known(proportion(share * trials, trials, independent))
    assert 0.0 <= known(found.low) <= found.value <= known(found.high) <= 1.0
