"""Puts hostile texts into every place of every captured log, and writes the table of docs/reliability.md.

    PYTHONPATH=tests:tools python -m soak.users_text TEXTS_PER_PLACE

Reading each line by itself, whoever wrote it, tells what the texts could have done.
"""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Iterator

from soak.report import record
from specdec_exporter.predictor.log.events import LogEvent
from specdec_exporter.predictor.log.logline import parse_line
from specdec_exporter.predictor.log.message import How
from userstext import LINE_ENDS, PARTS, PLACES, read, servers_lines, without_requests


def main(texts_per_place: int) -> int:
    """Attack each place; 1 if a text changed anything."""
    rows, changed = [], 0
    for place in PLACES:
        misled = forged = 0
        for log, text in _attacks(place, texts_per_place):
            before, after = PLACES[place]("x"), PLACES[place](text)
            at = len(log) // 2
            quiet, attacked = ([*log[:at], *said.encode().split(b"\n"), *log[at:]] for said in (before, after))
            expected = without_requests(read(quiet)[0])
            misled += without_requests(read(attacked)[0]) != expected
            forged += _events(after) - _events(before)
        line = PLACES[place]("TEXT").partition("\r")[0].replace("`", "'")
        example = re.sub(r"^\(.*?(?=\[)|\"asctime.*?\", ", "", line)[:110]
        rows.append((place, f"`{example}`", f"{texts_per_place:,}", f"{forged:,}", f"{misled:,}"))
        changed += misled
    header = (
        "Place",
        "How vLLM prints it",
        "Texts",
        "Forged lines that pass without these checks",
        "Texts that changed a number",
    )
    record("users-text", f"make users-text TEXTS={texts_per_place}", header, rows)
    return 1 if changed else 0


def _events(said: str) -> int:
    _, *lines = said.encode().split(b"\n")  # the first is the server's own
    return sum(isinstance(parse_line(line, How(any_writer=True)), LogEvent) for line in lines)


def _attacks(place: str, number: int) -> Iterator[tuple[list[bytes], str]]:
    """Logs and texts, the same in every run."""
    logs, chance = servers_lines(), random.Random(place)
    for _ in range(number):
        end = chance.choice(LINE_ENDS)
        yield chance.choice(logs), f"{chance.choice(('', end))}{end.join(chance.sample(PARTS, 3))}{end}"


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
