"""The worked example of docs/is-it-paying-off.md: recordings of a real vLLM, and what ``compare`` and ``tune`` say.

    PYTHONPATH=tests SPECDEC_VLLM_PYTHON=... python -m vllm.worked_example DIRECTORY

Takes about a quarter of an hour on two cores, and nothing else should run on them. ``DIRECTORY`` takes the recordings
and the servers' logs. If ``tune`` asks for another k, or chooses one that was not recorded, that k is recorded too.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from specdec_exporter.baseline.file import Context
from vllm import closed_loop, example, saturated
from vllm.example import Place
from vllm.exporter import run_command
from vllm.scenarios import Scenario
from vllm.server import running

_SECONDS: Final = 45.0
_DRAFTS: Final = {"good": 0.9, "fair": 0.6, "poor": 0.3}  # the share of the successors that the draft model knows
_OTHER_SHARE: Final = 0.9  # is nothing to prompt lookup, nor to no speculation at all
_HEADER: Final = ("recording", "requests/s", "tokens/s", "acceptance", "length", "TPOT", "speed-up", "decision")
_COST_HEADER: Final = ("recording", "step", "without drafts", "tokens per step", "c", "speed-up at like load")


def main() -> int:
    """Record everything into the directory on the command line, and print what the recordings say."""
    with example.place("docs/is-it-paying-off.md") as place:
        record(place, saturated.PLAIN, {"plain": _OTHER_SHARE})
        record(place, saturated.NGRAM, {"ngram": _OTHER_SHARE})
        kinds = record_until_chosen(place)
        record(place, dataclasses.replace(saturated.PLAIN, name="plain-again"), {"plain-again": _OTHER_SHARE})
    names = ["plain", "plain-again", "ngram", *(file(kind, k) for kind, ks in kinds.items() for k in ks)]
    print_table([_HEADER, *(row(place, name) for name in names)])
    print()
    print_table([_COST_HEADER, *cost_rows(place, names)])
    for kind, ks in kinds.items():
        recordings = [str(place.file(name)) for name in ("plain", *(file(kind, k) for k in ks))]
        print(f"\n$ specdec-exporter tune {' '.join(Path(each).name for each in recordings)}")
        print(run_command("tune", *recordings).stdout)
    return 0


def record_until_chosen(place: Place) -> dict[str, list[int]]:
    """Record the draft model with the k that ``tune`` asks for, for each kind of traffic; the k that were recorded."""
    recorded: dict[str, list[int]] = {kind: [] for kind in _DRAFTS}
    wanted = dict.fromkeys(_DRAFTS, saturated.K)
    while wanted:
        k = max(wanted.values())
        kinds = [kind for kind, wish in wanted.items() if wish == k]
        scenario = Scenario(name=f"draft_model-k{k}", method="draft_model", k=k, phases=())
        record(place, scenario, {file(kind, k): _DRAFTS[kind] for kind in kinds})
        for kind in kinds:
            recorded[kind].append(k)
        wishes = {kind: next_k(place, kind, recorded[kind]) for kind in _DRAFTS if recorded[kind]}
        wanted = {kind: wish for kind, wish in wishes.items() if wish and wish not in recorded[kind]}
    return recorded


def file(kind: str, k: int) -> str:
    """The name of a recording of the draft model."""
    return f"draft-{kind}-k{k}"


def tuned(place: Place, names: Iterable[str]) -> dict[str, Any]:
    """What ``tune`` makes of some recordings."""
    result = run_command("tune", *(str(place.file(name)) for name in names), "--output", "json")
    if result.returncode:
        sys.exit(f"worked_example.py: {result.stderr}")
    tuning: dict[str, Any] = json.loads(result.stdout)
    return tuning


def next_k(place: Place, kind: str, ks: Iterable[int]) -> int | None:
    """The k to record next, or else the one that was chosen, at the load that was recorded most."""
    tuning = tuned(place, ["plain", *(file(kind, k) for k in ks)])
    (best,), (advice,) = tuning["best"], tuning["advice"]
    (choice,) = (each["choice"] for each in best["by_load"] if each["concurrency_bound"] == advice["concurrency_bound"])
    found: int | None = choice["record_next"] or choice["recommended"]
    print(f"{kind} after k = {', '.join(map(str, ks))}: {choice}", file=sys.stderr)
    return found


def record(place: Place, scenario: Scenario, shares: dict[str, float]) -> None:
    """Record some kinds of traffic on one server, one after the other."""
    command = shlex.join(("vllm", "serve", "target", *scenario.arguments(Path())))
    with running(
        saturated.server(scenario, place.installation, models=place.models, directory=place.directory)
    ) as server:
        saturated.warm_up(server, share=1.0)
        for name, share in shares.items():
            print(name, file=sys.stderr)
            prompts = saturated.prompts(share, saturated.DIFFERENT_PROMPTS)
            with closed_loop.clients(server, saturated.CLIENTS, prompts, max_tokens=saturated.MAX_TOKENS):
                closed_loop.record(
                    server,
                    place.file(name),
                    seconds=_SECONDS,
                    context=Context(
                        hardware=f"{os.cpu_count()} CPU cores",
                        model="toy",
                        request_parameters=f"{saturated.CLIENTS} at once, temperature 0, toy prompts",
                        command=command,
                    ),
                )


def row(place: Place, name: str) -> tuple[str, ...]:
    """The cells of one recording, compared with the plain one."""
    files = (str(place.file(each)) for each in ("plain", name))
    result = run_command("compare", *files, "--output", "json")
    if result.returncode:
        sys.exit(f"worked_example.py: {result.stderr}")
    comparison: dict[str, Any] = json.loads(result.stdout)
    side = comparison["candidate"]
    plain = side["method"] is None
    realised = comparison["speedup"]["realised"]
    return (
        name,
        f"{side['requests_per_second']:.1f}",
        f"{side['generation_tokens_per_second']:.0f}",
        "-" if plain else f"{side['acceptance_ratio']['value']:.2f}",
        "-" if plain else f"{side['mean_acceptance_length']['value']:.2f}",
        f"{1000 * comparison['latencies'][0]['mean_seconds']['candidate']:.1f} ms",
        "-" if name == "plain" else f"{realised['value']:.2f}x ({realised['low']:.2f} to {realised['high']:.2f})",
        "-" if name == "plain" else comparison["decision"]["code"],
    )


def cost_rows(place: Place, names: Iterable[str]) -> list[tuple[str, ...]]:
    """The cells of the recordings with drafts: what a draft costs, against the plain one at like load."""
    rows: list[tuple[str, ...]] = []
    for name in names:
        for each in tuned(place, ["plain", name])["recordings"]:
            figures = each["whole"]
            if (speedup := figures["speedup"]) is not None:
                rows.append(
                    (
                        name,
                        f"{1000 * figures['step_seconds']:.1f} ms",
                        f"{1000 * figures['plain_step_seconds']:.1f} ms",
                        f"{figures['tokens_per_step']:.2f}",
                        f"{figures['draft_cost_ratio']['value']:.2f}",
                        f"{speedup['value']:.2f}x ({speedup['low']:.2f} to {speedup['high']:.2f})",
                    )
                )
    return rows


def print_table(rows: Sequence[Sequence[str]]) -> None:
    """Print rows, the first of which is the header, as a Markdown table."""
    header, *body = (f"| {' | '.join(cells)} |" for cells in rows)
    print("\n".join((header, "|" + " --- |" * len(rows[0]), *body)))


if __name__ == "__main__":
    sys.exit(main())
