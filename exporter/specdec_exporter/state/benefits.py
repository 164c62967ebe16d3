"""What speculation gives each served model, as families show it."""

from __future__ import annotations

from dataclasses import dataclass

from specdec_exporter.predictor.versions import SYNTHETIC
from specdec_exporter.speculation.benefit import BreakEven
from specdec_exporter.speculation.measured import Measured
from specdec_exporter.state.loads import LoadTotals
from specdec_exporter.state.record import PredictorState
from specdec_exporter.state.view import break_even_of, state_name


@dataclass(frozen=True, slots=True)
class ModelBenefit:
    """What speculation gives one served model; ``measured`` and ``cost`` only with a baseline without speculation."""

    assumed: BreakEven | None
    measured: BreakEven | None
    cost: Measured | None
    loads: list[tuple[int, LoadTotals]]

    @property
    def acceptance_ratio(self) -> dict[object, float]:
        """The acceptance rate that breaks even, by basis. It is also the cost of one more draft token."""
        return {even.basis: even.acceptance_ratio for even in (self.assumed, self.measured) if even is not None}

    @property
    def acceptance_length(self) -> dict[object, float]:
        """The mean acceptance length that breaks even, by basis; nothing where neither k nor draft length is known."""
        return {
            even.basis: even.mean_acceptance_length
            for even in (self.assumed, self.measured)
            if even is not None and even.mean_acceptance_length is not None
        }

    @property
    def speedup(self) -> dict[object, float]:
        """The speed-up by basis and comparison; nothing where it is not known."""
        cost = self.cost
        return {("measured", cost.compared): cost.speedup.value} if cost and cost.speedup else {}

    @property
    def speedup_bounds(self) -> dict[object, float]:
        """The ends of its interval, likewise."""
        cost, speedup = self.cost, self.cost.speedup if self.cost else None
        if cost is None or speedup is None or speedup.low is None or speedup.high is None:
            return {}
        return {("measured", cost.compared, "low"): speedup.low, ("measured", cost.compared, "high"): speedup.high}

    @property
    def speedup_known(self) -> bool | None:
        """Whether the speed-up is known; ``None``: there are no step times without drafts to compare with."""
        return self.cost.unknown is None if self.cost else None


def benefits_of(state: PredictorState) -> list[tuple[str, ModelBenefit]]:
    """Return what speculation gives each served model."""
    off = state_name(state) == "speculation_off" or state.running.deployment.rejection_sampling == SYNTHETIC
    measured_model = state.baseline.model_name if state.baseline and not off else None
    assumed, even = None if off else break_even_of(state), break_even_of(state, state.cost)
    measured = even if even.basis == "measured" else None
    return [
        (
            model,
            ModelBenefit(
                assumed=assumed,
                measured=measured if model == measured_model else None,
                cost=state.cost if model == measured_model else None,
                loads=state.loads[model].bins() if model in state.loads else [],
            ),
        )
        for model in state.model_names
    ]


def load_ratio_of(state: PredictorState) -> float | None:
    """Return the load of the baseline's model now / that of the recording; ``None`` if either is not known.

    Nothing is known of the load of now after a failed fetch.
    """
    pinned, counted = state.pinned, state.counted
    traffic = state.traffic.get(state.fit.model_name or "") if pinned and counted else None
    load = traffic.load(state.clock(), state.policy.data.traffic_seconds_min) if traffic else None
    return pinned.load_ratio(*load) if pinned and load else None
