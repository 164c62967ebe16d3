"""Whether anything drafts, with what, and who says so. The one order of precedence for all commands. Pure.

What the engine says beats what the operator wrote, because vLLM replaces some of it: a missing method by what the draft
model's configuration says, old names by new ones. The curve of acceptance has one position for each token that a draft
can have, also where k depends on the batch or only part of a draft is verified.

What nobody told is not known, and never "off": a served checkpoint may bring its own draft, so only the engine's line
says that nothing drafts. Nothing is guessed. Where no method is given, vLLM itself looks at the draft model's name, but
at its configuration too; and the mean length of drafts is k only if none is short.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from specdec_exporter import bounds
from specdec_exporter.predictor.facts.deployment import Deployment
from specdec_exporter.predictor.log.events import EngineConfig
from specdec_exporter.predictor.versions import NOT_SPECULATIVE

By = Literal["engine", "curve", "arguments"]


class Speculator(msgspec.Struct, frozen=True, kw_only=True):
    """What drafts; ``None``: not known. ``num_speculative_tokens`` is k, the most tokens that a draft can have.

    ``on``: whether the server speculates.

    ``method_by`` and ``num_speculative_tokens_by`` say where each comes from: the engine-init line, the positions of
    the curve, or the arguments.
    """

    on: bool | None = None
    method: str | None = None
    draft_model: str | None = None
    num_speculative_tokens: int | None = None
    method_by: By | None = None
    num_speculative_tokens_by: By | None = None


def speculator(engine: EngineConfig | None, arguments: Deployment, positions: int = 0) -> Speculator:
    """Return what drafts, by an engine-init line, the arguments, and the positions of a curve; 0 without one.

    An engine that says that it does not draft is believed. A curve is cut at :data:`bounds.POSITIONS`, so one of that
    many positions does not tell k.
    """
    is_on = _is_on(engine, arguments, positions)
    if engine is not None and engine.speculative is False:
        arguments, positions = Deployment(), 0
    methods: dict[By, str | None] = {"engine": engine.method if engine else None, "arguments": arguments.method}
    tokens: dict[By, int | None] = {
        "engine": engine.num_speculative_tokens if engine else None,
        "curve": positions if positions < bounds.POSITIONS else None,
        "arguments": arguments.num_speculative_tokens,
    }
    method_by = next((by for by, method in methods.items() if method), None)
    tokens_by = next((by for by, k in tokens.items() if k), None)
    return Speculator(
        on=is_on,
        method=methods[method_by] if method_by else None,
        draft_model=engine.draft_model if engine else arguments.draft_model,
        num_speculative_tokens=tokens[tokens_by] if tokens_by else None,
        method_by=method_by,
        num_speculative_tokens_by=tokens_by,
    )


def _is_on(engine: EngineConfig | None, arguments: Deployment, positions: int) -> bool | None:
    if engine is not None and isinstance(engine.speculative, bool):
        return engine.speculative
    if arguments.method in NOT_SPECULATIVE:
        return False
    return bool(positions) or arguments.speculative or None
