"""What a GPU's memory has to hold: the weights of target and draft, and the cache of keys and values. Pure."""

from __future__ import annotations

import msgspec


class MemoryBudget(msgspec.Struct, frozen=True, kw_only=True):
    """Memory of all GPUs that share the target, bytes; ``left_bytes`` is below 0 if the weights do not fit."""

    gpu_bytes: float
    budget_bytes: float
    target_bytes: float
    draft_bytes: float | None
    left_bytes: float


def memory_budget(
    gpu_bytes: float | None, utilization: float, target_bytes: float | None, draft_bytes: float | None
) -> MemoryBudget | None:
    """Return what is left for the KV cache, activations and CUDA graphs; ``None`` if a size is not known.

    ``left = gpu_bytes x utilization - target_bytes - draft_bytes``. The draft's weights are inside the share that
    ``gpu_memory_utilization`` allows: vLLM loads them with the target's, before it measures what is left for the cache
    (``load_model`` in ``v1/worker/gpu_model_runner.py`` of 0.32.0), so each byte of draft costs one of cache.
    ``draft_bytes``: 0 without a draft model; ``None``, which counts as 0, if its size is not known.
    """
    if gpu_bytes is None or target_bytes is None:
        return None
    budget = gpu_bytes * utilization
    return MemoryBudget(
        gpu_bytes=gpu_bytes,
        budget_bytes=budget,
        target_bytes=target_bytes,
        draft_bytes=draft_bytes,
        left_bytes=budget - target_bytes - (draft_bytes or 0.0),
    )
