"""What drafts cost on a real server: ``tune`` foretells the speed-up of a k that it was not shown, and chooses well.

The acceptance of each request is known, and the servers take turns under the same closed loops, so only the time of a
step is left to find out. Recording and ``tune`` do this, as they do for an operator.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from vllm import closed_loop, saturated
from vllm.checkpoints import write_checkpoints
from vllm.exporter import run_command
from vllm.language import Language
from vllm.server import Installation

KS: Final = (1, 3, 6)
LARGEST: Final = max(KS)
HELD_OUT: Final = (1, 3)  # the curve of the largest k says what these accept
CLIENTS: Final = (1, 3, 12)
SHARES: Final = (0.9, 0.6, 0.3)  # of the successors that the draft model knows
ROUNDS: Final = 2
SECONDS: Final = {1: 5.0, 3: 3.0, 12: 4.0}  # by clients; on a slow machine one makes few steps, and twelve finish late
LIKE_LOAD_MAX: Final = 1.5  # concurrency / clients, or the inverse
INSIDE_MIN: Final = 0.9  # of 95 % intervals
LOSS_MAX: Final = 0.05  # how much slower than the best k the chosen k may be
WORSE_MAX: Final = 1  # of nine choices, by chance


@dataclasses.dataclass(frozen=True, slots=True)
class Recordings:
    """Baseline files of all rounds by k (0: without speculation), number of clients and share."""

    files: dict[tuple[int, int, float], list[Path]]

    def tuned(self, share: float, ks: Iterable[int]) -> dict[str, Any]:
        """What ``tune`` makes of the recordings of one share with these k, and without speculation."""
        shown = itertools.product((0, *ks), CLIENTS)
        files = itertools.chain.from_iterable(self.files[k, clients, share] for k, clients in shown)
        result = run_command("tune", *map(str, files), "--output", "json")
        assert result.returncode == 0, result.stderr
        tuning: dict[str, Any] = json.loads(result.stdout)
        return tuning

    def choices(self, share: float, ks: Iterable[int]) -> dict[int, dict[str, Any]]:
        """The choice of k that these k lead to, by number of clients."""
        (best,) = self.tuned(share, ks)["best"]
        return {clients: each["choice"] for clients, each in by_clients(best["by_load"]).items()}

    def speedups(self, share: float) -> dict[int, dict[int, dict[str, float]]]:
        """The speed-ups as measured, by number of clients and k; 1 without speculation."""
        found: dict[int, dict[int, dict[str, float]]] = {
            clients: {0: {"value": 1.0, "low": 1.0, "high": 1.0}} for clients in CLIENTS
        }
        for setting in self.tuned(share, KS)["settings"]:
            for clients, figures in by_clients(setting["by_load"]).items():
                found[clients][setting["num_speculative_tokens"]] = figures["speedup"]
        return found

    def costs(self, share: float) -> dict[tuple[int, int], dict[str, float]]:
        """The draft cost ratio by k and number of clients."""
        return {
            (setting["num_speculative_tokens"], clients): figures["draft_cost_ratio"]
            for setting in self.tuned(share, KS)["settings"]
            for clients, figures in by_clients(setting["by_load"]).items()
        }


def by_clients(by_load: Sequence[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """The figures at the load of each closed loop; a load of which little was recorded has none."""
    known = [each for each in by_load if each.get("speedup", True)]

    def apart(each: dict[str, Any], clients: int) -> float:
        return abs(math.log(each["concurrency"] / clients))

    found = {clients: min(known, key=lambda each: apart(each, clients)) for clients in CLIENTS}
    for clients, each in found.items():
        assert apart(each, clients) < math.log(LIKE_LOAD_MAX), f"too few steps were recorded with {clients} clients"
    return found


@pytest.fixture(scope="module")
def recordings(installation: Installation, language: Language, tmp_path_factory: pytest.TempPathFactory) -> Recordings:
    directory = tmp_path_factory.mktemp("cost")
    models = directory / "models"
    models.mkdir()
    write_checkpoints(models, language, target_layers=saturated.TARGET_LAYERS)
    servers = {k: closed_loop.server(k, installation, models=models, directory=directory) for k in (0, *KS)}
    files: dict[tuple[int, int, float], list[Path]] = {}
    with closed_loop.running(list(servers.values())):
        for clients, share, number in itertools.product(CLIENTS, SHARES, range(ROUNDS)):
            for k, server in servers.items():
                path = directory / f"k{k}-{clients}-{share}-{number}.yaml"
                with closed_loop.clients(server, clients, closed_loop.prompts(share)):
                    closed_loop.record(server, path, seconds=SECONDS[clients])
                files.setdefault((k, clients, share), []).append(path)
    return Recordings(files)


def test_the_speedup_of_a_k_that_was_not_shown_is_foretold(recordings: Recordings) -> None:
    """One k leaves the fixed part of its cost open, two do not. Both times the interval holds what is then measured."""
    told, inside = [], 0
    for share, held_out in itertools.product(SHARES, HELD_OUT):
        measured = recordings.speedups(share)
        for shown in ([LARGEST], [k for k in KS if k != held_out]):
            for clients, choice in recordings.choices(share, shown).items():
                (expected,) = (each for each in choice["expected"] if each["k"] == held_out)
                found = measured[clients][held_out]["value"]
                within = expected["low"] <= found <= expected["high"]
                inside += within
                told.append(
                    f"{clients} clients, share {share}, k = {held_out} from {shown}: "
                    f"{expected['low']:.2f} to {expected['high']:.2f}, measured {found:.2f}{'' if within else ' (!)'}"
                )
    print("\n".join(told))
    assert inside >= INSIDE_MIN * len(told), "\n".join(told)


def test_the_chosen_k_is_the_best_or_nearly(recordings: Recordings) -> None:
    told, worse = [], 0
    for share in SHARES:
        measured = recordings.speedups(share)
        for clients, choice in recordings.choices(share, KS).items():
            at_load, chosen = measured[clients], choice["recommended"]
            best = max(at_load, key=lambda k: at_load[k]["value"])
            wanted = (1.0 - LOSS_MAX) * at_load[best]["value"]
            if chosen in at_load:
                found = at_load[chosen]["value"]
            else:  # was not measured, only foretold
                found = next(each["high"] for each in choice["expected"] if each["k"] == chosen)
            worse += found < wanted
            told.append(
                f"{clients} clients, share {share}: chosen {chosen} with {found:.2f}, "
                f"best {best} with {at_load[best]['value']:.2f}{' (!)' if found < wanted else ''}"
            )
            beyond_chance = chosen in at_load and at_load[chosen]["high"] < wanted
            assert not beyond_chance, told[-1]
    print("\n".join(told))
    assert worse <= WORSE_MAX, "\n".join(told)


def test_cost_belongs_to_the_server_and_not_to_acceptance(recordings: Recordings) -> None:
    """So the cost that one workload shows holds for another."""
    told, alike = [], 0
    costs = {share: recordings.costs(share) for share in SHARES}
    for one, other in itertools.combinations(SHARES, 2):
        for key in costs[one]:
            low, high = costs[one][key], costs[other][key]
            overlap = low["low"] <= high["high"] and high["low"] <= low["high"]
            alike += overlap
            told.append(f"{key}: {one} {low}, {other} {high}{'' if overlap else ' (!)'}")
    assert alike >= INSIDE_MIN * len(told), "\n".join(told)
