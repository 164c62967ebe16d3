"""A language in which every token has exactly one successor, and a draft model that knows a chosen share of them.

The target model always continues along fixed cycles of tokens, so its output is known in advance. In each long cycle
the draft model knows exactly the share of successors that the cycle is named after. The last token of a prompt chooses
the cycle, so every request chooses its own acceptance.
"""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Final

Prompt = tuple[int, ...]

BEGIN: Final = 0
END: Final = 1
FIRST_WORD: Final = 16  # below: special tokens, never in a cycle

SHARES: Final = (0.0, 0.3, 0.6, 0.9, 1.0)  # of the successors the draft model knows, one long cycle each
CYCLE_LENGTH: Final = 200  # longer than any completion asked for: a long cycle never repeats within a request
CHORUS: Final = tuple(range(FIRST_WORD, FIRST_WORD + 4))  # a cycle that repeats at once, for prompt lookup


@dataclasses.dataclass(frozen=True, slots=True)
class Language:
    """Successor tables, indexed by token: what the target model says next, and what the draft model guesses.

    Both are permutations, which lets :mod:`vllm.checkpoints` build weights whose largest logit is certain.
    """

    target: tuple[int, ...]
    draft: tuple[int, ...]

    @property
    def vocabulary_size(self) -> int:
        """Number of tokens, special ones included."""
        return len(self.target)


def cycle(share: float) -> range:
    """The tokens of the long cycle of which the draft model knows ``share``, in the order the target says them."""
    start = CHORUS[-1] + 1 + SHARES.index(share) * CYCLE_LENGTH
    return range(start, start + CYCLE_LENGTH)


def build_language() -> Language:
    """The one language of these tests: the chorus, known in full, and a long cycle for each of :data:`SHARES`."""
    size = CHORUS[-1] + 1 + len(SHARES) * CYCLE_LENGTH
    size = -(-size // 64) * 64  # vLLM pads vocabularies to 64; none left to pad
    target = list(range(size))  # a token outside every cycle follows itself
    for tokens in (CHORUS, *(cycle(share) for share in SHARES)):
        for token, successor in zip(tokens, (*tokens[1:], tokens[0]), strict=True):
            target[token] = successor
    draft = target.copy()
    for share in SHARES:
        known = sorted(cycle(share), key=_shuffled)[: round(share * CYCLE_LENGTH)]
        unknown = [token for token in cycle(share) if token not in known]
        # Each unknown token is guessed to be followed by the successor of the next unknown one: always wrong (there are
        # none, or more than one), and still a permutation.
        for token, other in zip(unknown, unknown[1:] + unknown[:1], strict=True):
            draft[token] = target[other]
    return Language(target=tuple(target), draft=tuple(draft))


def _shuffled(token: int) -> bytes:
    """A sort key that puts tokens in an irregular order, the same on every machine."""
    return hashlib.blake2b(str(token).encode(), digest_size=8).digest()


def excerpt(share: float, *, start: int, length: int = 8) -> Prompt:
    """``length`` tokens of a long cycle in order, from its ``start``-th token on; none repeats up to 200."""
    tokens = cycle(share)
    return tuple(tokens[(start + offset) % CYCLE_LENGTH] for offset in range(length))


def flawed_copy(share: float, *, start: int, length: int, flaw_every: int, quoted: int = 4) -> Prompt:
    """An excerpt with every ``flaw_every``-th token out of place, then the excerpt's first ``quoted`` tokens again.

    The target goes on without the flaws, so prompt lookup proposes the excerpt and is wrong at each flaw.
    """
    tokens = excerpt(share, start=start, length=length)
    flawed = (CHORUS[0] if index % flaw_every == flaw_every - 1 else token for index, token in enumerate(tokens))
    return (*flawed, *tokens[:quoted])
