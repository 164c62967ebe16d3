"""What can be known of a server before it starts, besides its arguments: sizes, tokenizers, storage. Pure."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from specdec_exporter.predictor.checkpoint import Checkpoint
from specdec_exporter.predictor.facts.deployment import Deployment
from specdec_exporter.predictor.manifest import Server
from specdec_exporter.predictor.modelname import bytes_per_parameter, parameters_of
from specdec_exporter.predictor.versions import canonical_method
from specdec_exporter.speculation.verdict import Finding


def with_sizes(
    deployment: Deployment,
    *,
    target: Checkpoint | None,
    draft: Checkpoint | None,
    target_name: str | None,
    draft_name: str | None,
    gpu_bytes: float | None,
) -> tuple[Deployment, frozenset[str]]:
    """Add sizes and vocabularies; return also the fields that were guessed from names.

    ``gpu_bytes``: memory of one GPU; a target takes as many as its tensor and pipeline parallel sizes say. A head is
    named after its target, so only the size of a whole draft model is guessed.
    """
    known = deployment
    fields: dict[str, Any] = {}
    guessed: set[str] = set()
    is_model = known.method is not None and canonical_method(known.method) == "draft_model"
    for part, checkpoint, name, quantization in (
        ("target", target, target_name, known.quantization),
        ("draft", draft, draft_name if is_model else None, known.draft_quantization),
    ):
        found = _sizes(checkpoint, name, quantization, known.dtype)
        fields |= {f"{part}_{field}": value for field, value in found.items()}
        if checkpoint is not None:
            fields[f"{part}_vocabulary"] = checkpoint.vocabulary
        guessed |= {f"{part}_{field}" for field in found if getattr(checkpoint, _READ[field], None) is None}
    if target is not None:
        fields["architecture"] = target.architecture
        fields["n_predict"] = target.n_predict
        fields["quantization"] = known.quantization or target.quantization
    if draft is not None:
        fields["draft_quantization"] = known.draft_quantization or draft.quantization
    if gpu_bytes is not None:
        fields["gpu_memory_bytes"] = gpu_bytes * (known.tensor_parallel_size or 1) * (known.pipeline_parallel_size or 1)
    return msgspec.structs.replace(known, **fields), frozenset(guessed)


_READ = {"parameters": "parameters", "bytes": "weight_bytes"}


def _sizes(
    checkpoint: Checkpoint | None, name: str | None, quantization: str | None, dtype: str | None
) -> dict[str, float]:
    """Return ``parameters`` and ``bytes``: as read, else guessed from the name, else left out."""
    parameters = checkpoint.parameters if checkpoint else None
    weights: float | None = checkpoint.weight_bytes if checkpoint else None
    guess = parameters_of(name) if name else None
    found = guess if parameters is None else float(parameters)
    if weights is None and found is not None:
        words = (quantization, checkpoint.quantization if checkpoint else None, name, dtype)
        weights = found * bytes_per_parameter(*words)
    sizes = {"parameters": found, "bytes": weights}
    return {field: float(value) for field, value in sizes.items() if value is not None}


def tokenizers(target: Checkpoint | None, draft: Checkpoint | None, method: str | None) -> Iterator[Finding]:
    """Compare the vocabularies of a target and its draft model. A head has none of its own."""
    if target is None or draft is None or None in (target.vocabulary_digest, draft.vocabulary_digest):
        return
    if target.vocabulary_digest == draft.vocabulary_digest:
        yield Finding("PASS", "Tokenizer", "draft and target give each token the same number")
    elif method is not None and canonical_method(method) == "draft_model":
        found = "draft and target give tokens different numbers: almost every draft will be rejected"
        yield Finding("WARN", "Tokenizer", found, "Take a draft of the target's family, with the same tokenizer.json.")


def storage(server: Server) -> Iterator[Finding]:
    """Judge the storage of an InferenceService. Source: KServe 0.17, its schema and inference_service_validation.go."""
    if server.misplaced_storages:
        found = "storageUris stands below model, where KServe has no such field: it is refused, or nothing is mounted"
        yield Finding("FAIL", "Storage", found, "Move it up, to spec.predictor.storageUris (KServe 0.16 and later).")
    if server.both_storages:
        found = "it has storageUri and storageUris, which exclude each other: KServe refuses it"
        yield Finding("FAIL", "Storage", found, "List both artifacts in storageUris, each with its mountPath.")
    mounts = list(server.storage)
    if relative := [mount for mount in mounts if not mount.startswith("/")]:
        found = f"mountPath {relative[0]} is not absolute: KServe refuses it"
        yield Finding("FAIL", "Storage", found, "Begin it with /, such as /mnt/models/draft.")
    elif len(mounts) > 1 and posixpath.commonpath(mounts) == "/":
        found = f"the mountPaths {' and '.join(mounts)} have no folder in common: KServe refuses them"
        yield Finding("FAIL", "Storage", found, "Put them under one folder: /mnt/models/target and /mnt/models/draft.")


def names_of(deployment: Deployment, server: Server | None) -> tuple[str | None, str | None]:
    """Return the names of target and draft: where their paths come from, as far as a manifest tells."""
    paths: Sequence[str | None] = (deployment.model, deployment.draft_model)
    target, draft = (server.source_of(path) if server and path else path for path in paths)
    return target, draft
