"""What vLLM's counters must say after given requests, computed without vLLM.

Greedy decoding over :mod:`vllm.language`: the target's output is a walk along the successor table, and a proposer is a
function of the tokens so far, so every draft and how much of it is accepted follows exactly. Held against real servers
of vLLM 0.21.0, 0.25.1 and 0.32.0, to the token.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile

from vllm.language import Language, Prompt

# Draft tokens for the tokens so far (prompt, and all output): from none to k of them.
Proposer = Callable[[Sequence[int]], Sequence[int]]


@dataclasses.dataclass(frozen=True, slots=True)
class Counts:
    """What a set of finished requests adds to the counters. ``steps`` counts decode steps, one per request and step."""

    requests: int = 0
    prompt_tokens: int = 0
    generation_tokens: int = 0
    steps: int = 0
    drafts: int = 0
    draft_tokens: int = 0
    accepted_per_position: tuple[int, ...] = ()

    @property
    def accepted_tokens(self) -> int:
        """Accepted draft tokens, over all positions."""
        return sum(self.accepted_per_position)

    def __add__(self, other: Counts) -> Counts:
        if len(self.accepted_per_position) != len(other.accepted_per_position):
            msg = "counts of different numbers of speculative tokens do not add up"
            raise ValueError(msg)
        return Counts(
            requests=self.requests + other.requests,
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            generation_tokens=self.generation_tokens + other.generation_tokens,
            steps=self.steps + other.steps,
            drafts=self.drafts + other.drafts,
            draft_tokens=self.draft_tokens + other.draft_tokens,
            accepted_per_position=tuple(
                ours + theirs
                for ours, theirs in zip(self.accepted_per_position, other.accepted_per_position, strict=True)
            ),
        )


def no_proposer(_context: Sequence[int]) -> Sequence[int]:
    """Speculation is off."""
    return ()


def draft_model(language: Language, *, k: int) -> Proposer:
    """``method: draft_model``: always k tokens, the draft model's own walk from the last token."""

    def propose(context: Sequence[int]) -> Sequence[int]:
        guesses: list[int] = []
        token = context[-1]
        for _ in range(k):
            token = language.draft[token]
            guesses.append(token)
        return guesses

    return propose


def prompt_lookup(*, k: int, shortest: int, longest: int) -> Proposer:
    """``method: ngram``: what followed the last tokens when they stood in the text before.

    Of the n-grams at the end of the text, ``longest`` to ``shortest`` tokens long, the longest that occurs earlier is
    taken, at its earliest occurrence, and up to k tokens that followed it are proposed, fewer where the text ends.
    """

    def propose(context: Sequence[int]) -> Sequence[int]:
        text = tuple(context)
        for length in range(min(longest, len(text) - 1), shortest - 1, -1):
            ending = text[-length:]
            for start in range(len(text) - length):
                if text[start : start + length] == ending:
                    return text[start + length : start + length + k]
        return ()

    return propose


def predict(language: Language, prompts: Iterable[Prompt], *, max_tokens: int, propose: Proposer, k: int) -> Counts:
    """The counts of ``prompts``, each run to ``max_tokens`` tokens (end-of-sequence ignored) with ``k`` >= 0.

    The first token comes from the prompt's own step, without a draft. Tokens past ``max_tokens`` count as drafted and
    accepted although they are never returned (vLLM >= 0.12).
    """
    return sum(
        (_predict_one(language, prompt, max_tokens=max_tokens, propose=propose, k=k) for prompt in prompts),
        start=Counts(accepted_per_position=(0,) * k),
    )


def _predict_one(language: Language, prompt: Prompt, *, max_tokens: int, propose: Proposer, k: int) -> Counts:
    context = [*prompt, language.target[prompt[-1]]]
    steps = drafts = draft_tokens = 0
    accepted_per_position = [0] * k
    while len(context) - len(prompt) < max_tokens:
        draft = propose(context)
        truth = continuation(language, context[-1], length=len(draft) + 1)
        accepted = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(draft, truth, strict=False)))
        steps += 1
        drafts += bool(draft)
        draft_tokens += len(draft)
        for position in range(accepted):
            accepted_per_position[position] += 1
        context += truth[: accepted + 1]
    return Counts(
        requests=1,
        prompt_tokens=len(prompt),
        generation_tokens=max_tokens,
        steps=steps,
        drafts=drafts,
        draft_tokens=draft_tokens,
        accepted_per_position=tuple(accepted_per_position),
    )


def continuation(language: Language, token: int, *, length: int) -> Prompt:
    """The ``length`` tokens that the target says after ``token``."""
    tokens: list[int] = []
    for _ in range(length):
        token = language.target[token]
        tokens.append(token)
    return tuple(tokens)
