"""What speculation gives each served model, as families show it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from specdec_exporter.predictor.versions import SYNTHETIC
from specdec_exporter.serving.loads import LoadTotals
from specdec_exporter.serving.view import PredictorView
from specdec_exporter.speculation.benefit import BreakEven
from specdec_exporter.speculation.measured import Measured


@dataclass(frozen=True, slots=True)
class ModelBenefit:
    """What speculation gives one served model; ``measured`` and ``cost`` only with a baseline without speculation."""

    assumed: BreakEven | None
    measured: BreakEven | None
    cost: Measured | None
    speedup_known: bool | None
    loads: list[tuple[int, LoadTotals]]

    def by_basis(self, read: Callable[[BreakEven], float | None]) -> dict[object, float]:
        """Return a figure of break-even by its basis; nothing where it is not known."""
        found = {each.basis: read(each) for each in (self.assumed, self.measured) if each is not None}
        return {basis: value for basis, value in found.items() if value is not None}

    @property
    def speedup(self) -> dict[object, float]:
        """The speed-up by basis and comparison; nothing where it is not known."""
        cost = self.cost
        return {("measured", cost.compared): cost.speedup.value} if cost and cost.speedup else {}

    @property
    def speedup_bounds(self) -> dict[object, float]:
        """The ends of its interval, likewise."""
        cost, found = self.cost, self.cost.speedup if self.cost else None
        if cost is None or found is None or found.low is None or found.high is None:
            return {}
        return {("measured", cost.compared, "low"): found.low, ("measured", cost.compared, "high"): found.high}


def benefits_of(known: PredictorView) -> list[tuple[str, ModelBenefit]]:
    """Return what speculation gives each served model."""
    off = known.state == "speculation_off" or known.running.deployment.rejection_sampling == SYNTHETIC
    measured_model = known.baseline.model_name if known.baseline and not off else None
    assumed, even = None if off else known.assumed_break_even, known.break_even
    measured = even if even.basis == "measured" else None
    # None: there are no step times without drafts to compare with.
    speedup_known = known.cost.unknown is None if known.cost else None
    return [
        (
            model,
            ModelBenefit(
                assumed=assumed,
                measured=measured if model == measured_model else None,
                cost=known.cost if model == measured_model else None,
                speedup_known=speedup_known if model == measured_model else None,
                loads=known.loads[model].bins() if model in known.loads else [],
            ),
        )
        for model in known.model_names
    ]
