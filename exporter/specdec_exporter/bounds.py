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
# Counters that go back without a proof of a restart: refused for so long, then taken for a restart.
DOUBT_SECONDS: Final = 60

# --- What a log holds -------------------------------------------------------------------------------------------------
LINE_BYTES: Final = 1 << 20  # skipped to the next newline and counted as oversized
