"""The simple way to read a log in Python, to compare with: every line, a regular expression, two sums."""

from __future__ import annotations

import re
import sys
from pathlib import Path

LINE = re.compile(rb"SpecDecoding metrics: .*?Accepted: (\d+) tokens, Drafted: (\d+) tokens")


def main(path: str) -> None:
    windows = accepted_tokens = draft_tokens = 0
    with Path(path).open("rb") as file:
        for line in file:
            if found := LINE.search(line):
                windows += 1
                accepted_tokens += int(found[1])
                draft_tokens += int(found[2])
    print(windows, accepted_tokens, draft_tokens)


if __name__ == "__main__":
    main(sys.argv[1])
