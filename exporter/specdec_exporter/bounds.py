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

# --- What files with a predictor's certificates and token hold --------------------------------------------------------
TOKEN_BYTES: Final = 16 * 1024  # a server takes 8 KiB of headers; the fetch fails
CERTIFICATE_BYTES: Final = 1024 * 1024  # all CAs of a system are 220 KiB; the fetch fails

# --- Who connects to the exporter -------------------------------------------------------------------------------------
# Each takes 0.3 MiB with TLS. At most half of the descriptors; the one that waits longest for a request is closed.
CONNECTIONS: Final = 64
IDLE_SECONDS: Final = 75  # for a whole request head, longer than the usual scrape intervals; closed
ANSWER_SECONDS: Final = 30  # for taking an answer; cut

# --- What a log holds -------------------------------------------------------------------------------------------------
LINE_BYTES: Final = 1 << 20  # skipped to the next newline and counted as oversized
