"""Processes of a predictor that count at a steady pace, so that the truth is known at any time."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

Figures = dict[str, float]  # by series of the exporter


def series(name: str, labels: Mapping[str, str]) -> str:
    """The exporter's series without the label of the predictor."""
    told = (f'{label}="{labels[label]}"' for label in sorted(labels) if label != "inference_service")
    return f"{name}{{{','.join(told)}}}"


Sample = tuple[str, str, dict[str, str], float]  # vLLM's and the exporter's name, with suffix; labels; value


class Engine(NamedTuple):
    """A data-parallel rank, which is there from and until these seconds."""

    label: str = "0"
    since: float = -math.inf
    until: float = math.inf


@dataclasses.dataclass(frozen=True, slots=True)
class Process:
    """One process. All times are seconds after the first scrape.

    It had counted ``level`` steps when it began and counts ``rate`` a second. ``clock``: how far the clock of its node
    is ahead; with ``None`` it tells no start time, as a vLLM with several API servers. ``wander``: by how much the
    start time that it tells moves.
    """

    began: float = -100_000.0
    rate: float = 10.0
    level: int = 0
    clock: float | None = 0.0
    wander: Callable[[float], float] = lambda _: 0.0
    engines: tuple[Engine, ...] = (Engine(),)
    bounds: tuple[float, ...] = (0.05, 0.1)
    model: str = "tiny"
    v0: bool = False

    def figures(self, at: float) -> Figures:
        """What an exporter should show of this process alone."""
        return {series(name, {"engine": "0", **labels}): value for _, name, labels, value in self._samples(at)}

    def body(self, at: float, unix: float) -> bytes:
        """The answer at a time, which is ``unix`` by a clock that is right."""
        lines: list[str] = []
        if self.clock is not None:
            started = unix - at + self.began + self.clock + self.wander(at)
            lines += ["# TYPE process_start_time_seconds gauge", f"process_start_time_seconds {started!r}"]
        for name, _, labels, value in self._samples(at):
            told = ",".join(f'{label}="{text}"' for label, text in labels.items())
            lines += [f"# HELP {name} Made up.", f"{name}{{{told}}} {value!r}"]
        telling = "spec_decode_draft_acceptance_rate" if self.v0 else "kv_cache_usage_perc"
        return "\n".join([*lines, f'vllm:{telling}{{model_name="{self.model}"}} 0.6', ""]).encode()

    def _samples(self, at: float) -> Iterator[Sample]:
        for label, since, until in self.engines:
            if since <= at < until:
                labels = {"model_name": self.model} if self.v0 else {"model_name": self.model, "engine": label}
                steps = int(self.level + self.rate * (at - max(self.began, since)))
                yield from self._of_an_engine(steps, labels)

    def _of_an_engine(self, steps: int, labels: dict[str, str]) -> Iterator[Sample]:
        requests, accepted = steps // 20, [steps * tenths // 10 for tenths in (9, 6, 3)]

        def counted(name: str, exported: str, value: float, **more: str) -> Sample:
            return f"vllm:{name}_total", f"specdec_{exported}_total", {**labels, **more}, float(value)

        if not self.v0:
            yield counted("spec_decode_num_drafts", "drafts", steps)
        yield counted("spec_decode_num_draft_tokens", "draft_tokens", 3 * steps)
        yield counted("spec_decode_num_accepted_tokens", "accepted_tokens", sum(accepted))
        for place, tokens in enumerate([] if self.v0 else accepted):
            name = "spec_decode_num_accepted_tokens_per_pos"
            yield counted(name, "accepted_tokens_per_position", tokens, position=str(place))
        yield counted("generation_tokens", "generation_tokens", steps + sum(accepted))
        yield counted("prompt_tokens", "prompt_tokens", 8 * requests)
        yield counted("request_success", "requests_finished", requests, finished_reason="stop")
        for name, exported, count in (
            ("time_to_first_token_seconds", "time_to_first_token_seconds", requests),
            ("inter_token_latency_seconds", "step_latency_seconds", steps),
        ):
            for place, bound in enumerate((*self.bounds, math.inf), 1):
                within = {**labels, "le": "+Inf" if bound == math.inf else str(bound)}
                value = float(count * place // (len(self.bounds) + 1))
                yield f"vllm:{name}_bucket", f"specdec_{exported}_bucket", within, value
            yield f"vllm:{name}_count", f"specdec_{exported}_count", labels, float(count)
            yield f"vllm:{name}_sum", f"specdec_{exported}_sum", labels, count * 0.0371
