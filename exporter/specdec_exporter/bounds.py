"""How much the exporter takes in of what others send: one number for each thing.

What is beyond a bound is refused, left out or summed, as said beside it. What is left out or summed is counted in
``specdec_exporter_dropped_total{what}``.
"""

from __future__ import annotations

from typing import Final

# --- What a predictor answers -----------------------------------------------------------------------------------------
BODY_BYTES: Final = 16 * 1024 * 1024  # of /metrics, compressed and decompressed; 300 times the body of 0.32.0; refused
VERSION_BODY_BYTES: Final = 64 * 1024  # refused
MODELS_BODY_BYTES: Final = 1024 * 1024  # refused
BODY_LINES: Final = 150_000  # of /metrics; 300 engines of 0.32.0 have 114,000; refused
SMALL_BODY_BYTES: Final = 256 * 1024  # read at once; of larger ones, one at a time in the whole process
LARGE_BODY_SECONDS: Final = 2.0  # for the rest of a larger body to arrive, so that nobody holds the others up; refused
GZIP_MEMBERS: Final = 1000  # refused
LEARNT_BODY_BYTES: Final = 2 * 1024 * 1024  # larger bodies are read line by line each time

# What a body holds. 300 data-parallel engines behind one server is the most that is known; one engine is usual.
ENGINES: Final = 512  # of the whole process, in equal shares; left out, known ones first; counted as engines
FEWEST_ENGINES: Final = 8  # a predictor's share is never less
SERIES: Final = 500  # of an engine; 0.32.0 has 190 of interest; left out; counted as series
SERIES_BYTES: Final = 16 * 1024  # of its line; left out; counted as labels
POSITIONS: Final = 64  # of a draft; left out; counted as positions
BUCKETS: Final = 100  # of a histogram; the whole histogram is left out; counted as histograms
LABEL_CHARACTERS: Final = 256  # of a model, an engine or a finished reason; its series is left out; counted as labels
COUNT: Final = (
    2.0**53
)  # above it a float is no exact count; left out, like a negative or infinite one; counted as values
COUNT_PER_SECOND: Final = 1e7  # a faster counter of one engine is a glitch: the jump is no increase; counted as values

# --- What a log holds -------------------------------------------------------------------------------------------------
LINE_BYTES: Final = 1 << 20  # skipped to the next newline and counted as oversized
LOG_ENGINES: Final = 512  # per predictor; further ones are summed under engine="other"; counted as log_engines
LOG_WRITERS: Final = 1024  # processes, per file and read; then it is forgotten who wrote what; counted as log_writers
