"""What a comparison says about what its recordings hold: warm-ups, kinds of requests, waiting requests."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from builders import known
from recordings import CURVE, recording
from specdec_exporter.baseline.file import Baseline, Block
from specdec_exporter.comparison.compare import compare
from specdec_exporter.speculation.acceptance import Counts
from specdec_exporter.speculation.policy import load_policy

replace = msgspec.structs.replace
PLAIN = recording("plain", tpot=[0.02] * 1200, blocks=12)


def speculating(tpot: Sequence[float] = (0.011,) * 1200) -> Baseline:
    return recording("fast", tpot=tpot, curve=CURVE, blocks=12)


def flagged(candidate: Baseline, baseline: Baseline = PLAIN) -> dict[str, str]:
    return {flag.code: flag.message for flag in compare(baseline, candidate, load_policy()).flags}


def test_a_careful_recording_has_no_flag() -> None:
    assert flagged(speculating()) == {}


def test_a_slow_first_block_is_a_warm_up() -> None:
    cold = speculating([0.03] * 100 + [0.011] * 1100)
    assert "time per output token is 2.7 times that of the rest" in flagged(cold)["cold_start"]
    assert "cold_start" not in flagged(speculating([0.011] * 600 + [0.03] * 100 + [0.011] * 500))


def test_parts_of_other_acceptance_are_flagged() -> None:
    fast = speculating()

    def part(index: int, block: Block) -> Block:
        counts: Counts = block.counts
        accepted = known(counts.draft_tokens) * (0.2 if index % 2 else 0.8)
        return replace(block, counts=replace(counts, accepted_tokens=accepted))

    varied = replace(fast, blocks=tuple(part(index, each) for index, each in enumerate(fast.blocks)))
    assert "20% to 80% in 12 blocks" in flagged(varied)["acceptance_varies"]


def test_requests_that_wait_for_their_first_token_gain_little() -> None:
    waiting = recording("plain", tpot=[0.02] * 1200, ttft=[8.0] * 1200, e2e=[10.0] * 1200, blocks=12)
    assert "80% of a request's time" in flagged(speculating(), waiting)["first_token_bound"]
