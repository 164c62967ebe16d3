"""The exporter's log scanner alone, with what ``analyze`` asks of it: prints its totals and its CPU time."""

from __future__ import annotations

import sys
import time
from itertools import chain
from pathlib import Path

from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.log.events import SpecDecoding
from specdec_exporter.predictor.log.scan import LogScanner
from specdec_exporter.predictor.sources.inputs import REPORT_KINDS
from specdec_exporter.predictor.sources.stream import read_stream


def main(path: str) -> None:
    started = time.process_time()
    windows = accepted_tokens = draft_tokens = 0
    scanner = LogScanner(ReaderCounters(), kinds=REPORT_KINDS, count_lines=False)
    with Path(path).open("rb", buffering=0) as file:
        for event in chain.from_iterable(read_stream(file, scanner)):
            if isinstance(event, SpecDecoding):
                windows += 1
                accepted_tokens += event.accepted_tokens
                draft_tokens += event.draft_tokens
    print(windows, accepted_tokens, draft_tokens, time.process_time() - started)


if __name__ == "__main__":
    main(sys.argv[1])
