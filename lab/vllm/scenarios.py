"""What is asked of a real server, and what its counters must say afterwards."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Final

from vllm.language import CHORUS, Language, Prompt, excerpt, flawed_copy
from vllm.predict import Counts, Proposer, draft_model, no_proposer, predict, prompt_lookup

_LOOKUP_SHORTEST: Final = 2
_LOOKUP_LONGEST: Final = 4


@dataclasses.dataclass(frozen=True, slots=True)
class Phase:
    """Some requests, and how long their answers are."""

    name: str
    prompts: tuple[Prompt, ...]
    max_tokens: int


@dataclasses.dataclass(frozen=True, slots=True)
class Scenario:
    """A server's speculation and the traffic it gets. ``method`` is vLLM's name, ``None`` where speculation is off."""

    name: str
    method: str | None
    k: int
    phases: tuple[Phase, ...]
    api_servers: int = 1

    def arguments(self, models: Path) -> tuple[str, ...]:
        """The server's arguments; ``models`` holds the checkpoints."""
        arguments: list[str] = []
        if self.method is not None:
            config: dict[str, object] = {"method": self.method, "num_speculative_tokens": self.k}
            if self.method == "draft_model":
                config["model"] = str(models / "draft")
            else:
                config |= {"prompt_lookup_min": _LOOKUP_SHORTEST, "prompt_lookup_max": _LOOKUP_LONGEST}
            arguments += ["--speculative-config", json.dumps(config)]
        if self.api_servers > 1:
            arguments += ["--api-server-count", str(self.api_servers)]
        return tuple(arguments)

    def expected(self, language: Language, phase: Phase) -> Counts:
        """What ``phase`` adds to the counters."""
        return predict(language, phase.prompts, max_tokens=phase.max_tokens, propose=self._proposer(language), k=self.k)

    def _proposer(self, language: Language) -> Proposer:
        if self.method == "draft_model":
            return draft_model(language, k=self.k)
        if self.method == "ngram":
            return prompt_lookup(k=self.k, shortest=_LOOKUP_SHORTEST, longest=_LOOKUP_LONGEST)
        return no_proposer


def _excerpts(share: float, *, requests: int = 8, max_tokens: int = 100) -> Phase:
    return Phase(
        f"p{share:.0%}".removesuffix("%"),
        tuple(excerpt(share, start=23 * index) for index in range(requests)),
        max_tokens,
    )


def _flawed_copies(name: str, *, flaw_every: int, requests: int = 6) -> Phase:
    prompts = tuple(flawed_copy(1.0, start=31 * index, length=80, flaw_every=flaw_every) for index in range(requests))
    return Phase(name, prompts, max_tokens=70)


# Below 1000 drafts for each server: up to there, the three decimals that the log has of a position's rate tell its
# count exactly, however the traffic falls into the log's intervals.
DRAFT_MODEL_K3: Final = Scenario(
    name="draft_model-k3",
    method="draft_model",
    k=3,
    phases=(_excerpts(0.9), _excerpts(0.6), _excerpts(0.3, requests=5)),
)
DRAFT_MODEL_K4: Final = Scenario(
    name="draft_model-k4",
    method="draft_model",
    k=4,
    phases=(_excerpts(1.0), _excerpts(0.0, requests=5), _excerpts(0.6, requests=5, max_tokens=63)),
)
NGRAM_K5: Final = Scenario(
    name="ngram-k5",
    method="ngram",
    k=5,
    phases=(
        _flawed_copies("few-flaws", flaw_every=25),
        _flawed_copies("many-flaws", flaw_every=4),
        # At first only part of a chorus follows the match: drafts shorter than k, all of them accepted.
        Phase("short-drafts", tuple((*CHORUS[index:], *CHORUS[:index]) for index in range(4)), max_tokens=9),
        Phase("no-match", tuple(excerpt(1.0, start=50 * index) for index in range(3)), max_tokens=50),
    ),
)
NO_SPECULATION: Final = Scenario(name="baseline-nospec", method=None, k=0, phases=(_excerpts(0.6, requests=6),))
TWO_API_SERVERS: Final = Scenario(
    name="draft_model-apiservers2",
    method="draft_model",
    k=3,
    phases=(_excerpts(0.9, requests=12), _excerpts(1.0, requests=6)),
    api_servers=2,
)

BY_NAME: Final = {
    scenario.name: scenario for scenario in (DRAFT_MODEL_K3, DRAFT_MODEL_K4, NGRAM_K5, NO_SPECULATION, TWO_API_SERVERS)
}
