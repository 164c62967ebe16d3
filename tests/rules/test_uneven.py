"""A share of the traffic loses by drafts that are good on average, by short windows."""

from __future__ import annotations

from pathlib import Path

from rules.conftest import RENDERED
from rules.scenario import SLOW_MINUTES, Case, Pack, Phase, Series, alone, measured, service, uneven

UNEVEN = "SpecDecodeAcceptanceUneven warning"
MINUTES, LAST = 230, 225
ALL, NONE = range(MINUTES), range(0)
GOOD = (0.85, 0.72, 0.59)  # 0.72
SHARE = "inference_service:specdec_acceptance_uneven:quantile3h"


def test_a_share_that_loses(pack: Pack, tmp_path: Path) -> None:
    drafting = service(Phase(minutes=MINUTES, curve=GOOD))
    few = service(Phase(minutes=MINUTES, curve=GOOD, drafts_per_minute=60))
    low = service(Phase(minutes=MINUTES, curve=(0.6, 0.45, 0.3)))  # 0.45

    def case(name: str, expected: str | None, *series: list[Series], value: float | None = None) -> Case:
        made = [each for some in series for each in some]
        fired: set[str] = {expected} if expected else set()
        return Case(name=name, series=made, firing={LAST: fired}, values={LAST: {SHARE: value}} if value else {})

    windows = uneven(MINUTES, ALL)
    quarter = range(LAST - 45, LAST)  # bad minutes are half bad: an eighth of three hours
    cases = (
        case("windows", UNEVEN, drafting, windows, value=0.37),
        case("windows as alike as drafts", None, drafting, uneven(MINUTES, NONE)),
        case("an eighth of the windows", None, drafting, uneven(MINUTES, quarter)),
        case("too few windows", None, drafting, uneven(MINUTES, ALL, per_minute=0.5)),
        case("windows of few drafts", None, few, uneven(MINUTES, ALL, drafts=60)),
        case("nobody loses", None, drafting, uneven(MINUTES, ALL, (0.55, 0.85))),
        case("all lose", None, low, windows),
        case("the whole gains, break-even assumed", None, drafting, windows, measured(MINUTES, 1.3)),
        case("the whole gains, break-even measured", UNEVEN, drafting, windows, measured(MINUTES, 1.3, break_even=0.5)),
    )
    rules = alone(RENDERED / "specdec.rules.yaml", tmp_path, UNEVEN.split(maxsplit=1)[0])
    Pack(pack.promtool, rules, tmp_path).run(*cases, every=SLOW_MINUTES)
