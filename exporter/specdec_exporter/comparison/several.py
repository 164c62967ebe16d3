"""Several recordings beside one without speculation: the documented, stable shape of ``compare`` with three or more.

Ratios are 0..1 or factors as named. Times are seconds, lengths tokens, intervals 95 %. ``null`` means not recorded or
not known; at the end of an interval it means unbounded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from specdec_exporter.baseline.file import Baseline
from specdec_exporter.comparison.advice import Advice, advise
from specdec_exporter.comparison.byload import AtLoad, at_the_same_arrivals, choose, speedups_by_load
from specdec_exporter.comparison.compare import Comparison, compare
from specdec_exporter.errors import ComparisonError
from specdec_exporter.speculation.policy import Policy


class Several(msgspec.Struct, frozen=True, kw_only=True):
    """The whole result: each recording compared with the one without speculation, all by load, and the advice.

    ``comparisons`` has one entry for each recording with speculation, in the given order.
    """

    comparisons: tuple[Comparison, ...]
    loads: tuple[AtLoad, ...]
    advice: Advice


def compare_several(recordings: Sequence[Baseline], policy: Policy) -> Several:
    """Compare recordings of one model, in any order, with the one among them that has no speculation.

    Raises :class:`ComparisonError` unless exactly one is without speculation and another with it, if two have one name,
    and if the models differ.
    """
    plain = _plain_one(recordings)
    candidates = [recording for recording in recordings if recording is not plain]
    repeated = [name for name, number in Counter(recording.name for recording in recordings).items() if number > 1]
    if repeated:
        raise ComparisonError(f"expected a name for each recording, found {repeated[0]} twice: change `name`")
    comparisons = tuple(compare(plain, candidate, policy) for candidate in candidates)
    whole = {comparison.candidate.name: comparison.speedup.judged for comparison in comparisons}
    loads = choose(speedups_by_load(plain, candidates, policy), plain, candidates, policy, whole)
    loads += choose(at_the_same_arrivals(plain, comparisons), plain, candidates, policy)
    return Several(
        comparisons=comparisons,
        loads=tuple(loads),
        advice=advise(loads, {candidate.name: candidate for candidate in candidates}, policy),
    )


def _plain_one(recordings: Sequence[Baseline]) -> Baseline:
    plain = [side for side in recordings if not side.speculates and side.method is None and side.k is None]
    if len(plain) != 1 or len(recordings) < 2:
        names = ", ".join(side.name for side in plain) or "none"
        raise ComparisonError(
            f"expected one recording without speculation and others with it, found {names} without speculation of "
            f"{len(recordings)}"
        )
    return plain[0]
