"""``docs/engines.md``: the names that are read of each inference engine, from the data of the exporter."""

from __future__ import annotations

from pathlib import Path

from generated import filled, table
from specdec_exporter.predictor.engines.engine import ENGINES, VLLM, InferenceEngine

PAGE = Path("docs") / "engines.md"
_KINDS = ("counters", "gauges", "histograms")
_DERIVED = {
    "by_position": dict.fromkeys(("drafts", "draft_tokens", "accepted_tokens"), "from the tokens by position"),
    "accepted_by_position": {"accepted_tokens": "from the tokens by position"},
    "from_generation": {"accepted_tokens": "generated, without one for each request and draft"},
}


def engines_page(page: str) -> str:
    """Return the page with its table anew."""
    engines = [VLLM, *(engine for engine in ENGINES.values() if engine.is_read and engine is not VLLM)]
    # What vLLM alone tells stands in its file.
    fields = dict.fromkeys(field for engine in engines[1:] for kind in _KINDS for field in getattr(engine, kind))
    rows = [(field.replace("_", " "), *(_names(engine, field) for engine in engines)) for field in fields]
    prefixes = ("*prefixes*", *(", ".join(f"`{prefix}`" for prefix in engine.prefixes) for engine in engines))
    return filled(page, {"engines": table(("Figure", *(engine.name for engine in engines)), [prefixes, *rows])})


def _names(engine: InferenceEngine, field: str) -> str:
    names = [f"`{name}`" for kind in _KINDS for name in getattr(engine, kind).get(field, ())]
    derived = _DERIVED.get(engine.derived or "", {}).get(field)
    return ", else ".join([*([derived] if derived else []), *names])
