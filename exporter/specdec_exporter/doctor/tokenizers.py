"""Whether a draft model gives each token the number that its target gives it.

vLLM compares only the sizes of the vocabularies, so a draft of the same size with another tokenizer starts, and almost
all of its tokens are rejected.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from specdec_exporter.bounds import TOKENIZER_BYTES
from specdec_exporter.predictor.facts.deployment import Deployment
from specdec_exporter.predictor.versions import canonical_method
from specdec_exporter.speculation.verdict import Finding


def compare_tokenizers(deployment: Deployment) -> Finding | None:
    """Compare target and draft model; ``None`` unless both folders, with a tokenizer each, are on this machine.

    A head has no tokenizer of its own.
    """
    if canonical_method(deployment.method or "") != "draft_model":
        return None
    target, draft = _tokens(deployment.model), _tokens(deployment.draft_model)
    if target is None or draft is None:
        return None
    if target == draft:
        return Finding("PASS", "Tokenizer", "draft and target give each token the same number")
    found = "draft and target give tokens different numbers: almost every draft will be rejected"
    return Finding("WARN", "Tokenizer", found, "Use a draft of the target's family, with the same tokenizer.json.")


class _Model(msgspec.Struct):
    vocab: dict[str, int] | list[tuple[str, float]]  # a list (Unigram): the number of a token is its place


class _Tokenizer(msgspec.Struct):
    model: _Model


def _tokens(folder: str | None) -> dict[str, int] | None:
    """Return the numbers of a folder's tokens; ``None`` if there is no such folder, or nothing to compare."""
    path = Path(folder or "") / "tokenizer.json"
    try:
        if not path.is_file() or path.stat().st_size > TOKENIZER_BYTES:
            return None
        vocabulary = msgspec.json.decode(path.read_bytes(), type=_Tokenizer).model.vocab
    except (OSError, ValueError, RecursionError):
        return None
    if isinstance(vocabulary, list):
        vocabulary = {token: number for number, (token, _) in enumerate(vocabulary)}
    return vocabulary or None
