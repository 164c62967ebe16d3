"""Engines that accept far less than the other engines of their model. Pure.

SpecDecodeReplicaOutlier says the same of replicas and engines over half an hour.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from specdec_exporter.formatting import percent
from specdec_exporter.predictor.versions import KnownPitfall
from specdec_exporter.speculation.figures import Figures
from specdec_exporter.speculation.policy import Policy
from specdec_exporter.speculation.weighing import too_few
from specdec_exporter.state.record import PredictorState
from specdec_exporter.state.view import EngineView, engines_of

_SPANS: tuple[Callable[[EngineView], Figures | None], ...] = (
    lambda engine: engine.window,
    lambda engine: engine.lifetime,
)


def outlying_engines(state: PredictorState) -> tuple[KnownPitfall, ...]:
    """Name each engine that accepts far less than all together, by the lifetime where the window has too few drafts."""
    engines = engines_of(state)
    pitfalls: list[KnownPitfall] = []
    for model in dict.fromkeys(engine.model_name for engine in engines):
        alike = [engine for engine in engines if engine.model_name == model]
        for span in _SPANS:
            judged = _judged(alike, span, state.policy)
            if len(judged) > 1:
                pitfalls += _outliers(judged, len(alike), state.policy)
                break
    return tuple(pitfalls)


def _judged(
    engines: Sequence[EngineView], span: Callable[[EngineView], Figures | None], policy: Policy
) -> list[tuple[str, float, Figures]]:
    """Return name, acceptance rate and figures of the engines that have enough drafts to judge by."""
    return [
        (engine.engine, figures.acceptance_ratio, figures)
        for engine in engines
        if (figures := span(engine)) and figures.acceptance_ratio is not None and too_few(figures, policy) is None
    ]


def _outliers(judged: Sequence[tuple[str, float, Figures]], engines: int, policy: Policy) -> list[KnownPitfall]:
    drafted = sum(figures.draft_tokens or 0.0 for _, _, figures in judged)
    accepted = sum(figures.accepted_tokens or 0.0 for _, _, figures in judged)
    if not drafted:
        return []
    together = accepted / drafted
    # With n alike, the service itself is 1/n of what it is held against.
    least = together - policy.outlier_gap * (1 - 1 / engines)
    return [
        KnownPitfall(
            code="engine_outlier",
            releases="",
            meaning=f"Engine {name} accepts {percent(rate)} of its draft tokens; {engines} engines together "
            f"{percent(together)}.",
            action="Compare its model files and its GPU with those of another rank, or restart the server.",
            costly=True,
        )
        for name, rate, _ in judged
        if rate < least
    ]
