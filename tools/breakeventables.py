"""The assumed break-even: its table in ``docs/verdict.md``, and the published services behind it.

``docs/evidence/break-even.yaml`` has the services, ``break-even.md`` beside it shows them with what the exporter says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final

import msgspec

from generated import filled, table
from specdec_exporter.speculation.acceptance import Counts
from specdec_exporter.speculation.evidence import Evidence
from specdec_exporter.speculation.figures import figures
from specdec_exporter.speculation.judging import judge
from specdec_exporter.speculation.policy import AssumedRow, load_policy
from specdec_exporter.speculation.verdict import Verdict

BREAK_EVEN: Final = Path("docs") / "evidence" / "break-even.md"
_SERVICES: Final = Path(__file__).parents[1] / "docs" / "evidence" / "break-even.yaml"
_DRAFTS: Final = 1_000_000.0  # so many that chance decides nothing


class Service(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A published service with one k. ``loads``: requests at a time -> tokens per second without and with speculation.

    ``length`` is its mean acceptance length; ``of``: whose it is, if not its own. Load 0: not stated.
    """

    service: str
    source: str
    method: str
    k: int
    length: float
    loads: dict[int, tuple[float, float]]
    of: str | None = None

    def speedups(self) -> Mapping[int, float]:
        """Return the speed-up by load."""
        return {load: with_drafts / without for load, (without, with_drafts) in self.loads.items()}

    def cost(self, speedup: float) -> float:
        """Return what a draft token cost, in steps without drafts: the acceptance rate that broke even."""
        return (self.length / speedup - 1.0) / self.k

    def verdict(self, load: int) -> Verdict:
        """Return what the exporter says of it at a load, without a recording."""
        counts = Counts(
            drafts=_DRAFTS,
            draft_tokens=self.k * _DRAFTS,
            accepted_tokens=(self.length - 1.0) * _DRAFTS,
            first_tokens=_DRAFTS,
        )
        seen = figures(counts, self.k, "metrics", 1800.0, concurrency=float(load) or None)
        evidence = Evidence(state="drafting", figures=seen, method=self.method, num_speculative_tokens=self.k)
        return judge(evidence, load_policy()).verdict


def services() -> list[Service]:
    """Return the published services."""
    return msgspec.yaml.decode(_SERVICES.read_bytes(), type=list[Service])


def evidence_page(page: str) -> str:
    """Fill in the table of published services: figures at their lowest and highest load."""
    rows = []
    for each in services():
        speedups = each.speedups()
        rows.append(
            (
                f"{each.service} ({each.source})",
                f"`{each.method}`",
                str(each.k),
                f"{each.length:.2f}{'*' if each.of else ''}",
                _ends([str(load or "?") for load in speedups]),
                _ends([f"{value:.2f}" for value in speedups.values()]),
                _ends([f"{each.cost(value):.2f}" for value in speedups.values()]),
                _said(each),
            )
        )
    header = ("Service", "Method", "k", "Length", "Requests", "Speed-up", "Cost of a draft token", "The exporter says")
    return filled(page, {"services": table(header, rows)})


def _ends(cells: Sequence[str]) -> str:
    return cells[0] if len(cells) == 1 else f"{cells[0]} to {cells[-1]}"


def _said(service: Service) -> str:
    """Return what is said of it, from which load on."""
    told = {load: service.verdict(load).headline.partition(":")[0] for load in service.loads}
    runs = [(word, next(iter(run))) for word, run in groupby(told, key=told.__getitem__)]
    (first, _), *others = runs
    return "; ".join([first, *(f"{word} from {load} on" for word, load in others)])


def assumed() -> str:
    """Return the table of assumed levels by method, k and load."""
    policy = load_policy().assumed

    def cells(row: AssumedRow, before: int) -> tuple[str, ...]:
        own = ", ".join(f"`{method}`" for method in row.methods)
        k = "any" if own else f"from {before + 1}" if row.k_max is None else f"{before + 1} to {row.k_max}"
        levels = (f"{level:g}" for side in (row.light, row.heavy) for level in (side.min, side.watch))
        return (own or "any other", k, *levels)

    ends = [0, *(row.k_max or 0 for row in policy.rows)]
    light, heavy = f"up to {policy.light_requests:g} requests", f"from {policy.heavy_requests:g} requests"
    header = ("Method", "k", f"Break-even {light}", "Watch level", f"Break-even {heavy}", "Watch level")
    return table(header, [cells(row, before) for before, row in zip(ends, policy.rows, strict=False)])
