"""How much the exporter takes in of what others send: one number for each thing.

Beside each number stand what it limits and what happens beyond it. What is left out or summed is counted in
``specdec_exporter_dropped_total{what}``.
"""

from __future__ import annotations

from typing import Final

# The label ``what``. Each is 0 from the start; those of logs are absent where no log is read.
DROPPED: Final = ("engines", "series", "positions", "histograms", "labels", "values", "requests")
DROPPED_OF_LOGS: Final = ("log_engines", "log_positions", "log_writers", "log_files", "untrusted_lines")

# --- What a predictor answers -----------------------------------------------------------------------------------------
BODY_BYTES: Final = 16 * 1024 * 1024  # of /metrics, where 0.32.0 has 54,000; refused
BODY_LINES: Final = 200_000  # of /metrics, where 300 engines of 0.32.0 have 114,000; refused
SMALL_BODY_BYTES: Final = 256 * 1024  # of a body that is read at once; larger ones wait: one at a time in the process
LARGE_BODY_SECONDS: Final = 2.0  # for the rest of a larger body to arrive, as others wait; refused
VERSION_BODY_BYTES: Final = 1024 * 1024  # of /version, or where else a release is told; refused
MODELS_BODY_BYTES: Final = 1024 * 1024  # of /v1/models; refused
PROCESSES: Final = 64  # behind one URL, for 10 minutes after their last answer; the longest silent is forgotten
PROCESSES_ENGINES: Final = 1024  # of these processes; as above

# 300 data-parallel engines behind one server is the most that is known; one is usual.
ENGINES: Final = 512  # of the process, in equal shares; known engines stay, new ones are left out; counted as engines
FEWEST_ENGINES: Final = 8  # of a predictor's share, however many predictors there are; as above
SERIES: Final = 500  # of an engine, where 0.32.0 has 190 of interest; left out; counted as series
SERIES_BYTES: Final = 16 * 1024  # of the line of a series; left out; counted as labels
LABEL_CHARACTERS: Final = 256  # of a model, an engine or a finished reason; its series is left out; counted as labels
POSITIONS: Final = 64  # of a draft; left out; counted as positions, and log_positions
BUCKETS: Final = 100  # of a histogram; the whole histogram is left out; counted as histograms
COUNT: Final = 2.0**53  # of any value: no float is exact beyond; left out, as NaN and negative ones; counted as values
COUNT_PER_SECOND: Final = 1e9  # of growth of a counter: more is a glitch; left out; counted as values

# --- What files with a predictor's certificates and token hold --------------------------------------------------------
TOKEN_BYTES: Final = 16 * 1024  # of a token, where a server takes 8 KiB of headers; the fetch fails
CERTIFICATE_BYTES: Final = 1024 * 1024  # of a certificate file, where all CAs of a system are 220 KiB; the fetch fails

# --- Who connects to the exporter -------------------------------------------------------------------------------------
REQUESTS: Final = 128  # in work at once, health checks apart; refused with status 503; counted as requests
IDLE_SECONDS: Final = 75  # for a whole request head, longer than the usual scrape intervals; the connection is closed
ANSWER_SECONDS: Final = 10  # for taking an answer, as long as Prometheus waits by default; the connection is cut

# --- What a log holds -------------------------------------------------------------------------------------------------
LINE_BYTES: Final = 256 * 1024  # of a line, newline included; skipped to the next newline; counted as oversized
HELD_BYTES: Final = 4 << 20  # of a log's unfinished lines, all containers together; skipped; counted as oversized
START_LINES: Final = 20_000  # of a start that neither fails nor gets ready; no failure is looked for after them
START_CHARACTERS: Final = 64 * 1024  # of a line of a start, with a traceback in JSON; the rest is not looked at
MESSAGE_CHARACTERS: Final = 500  # of the line that says why a start failed; cut
LOG_ENGINES: Final = 512  # of all logs, in equal shares; summed as `engine="other"`; counted as log_engines
LOG_WRITERS: Final = 1024  # of a file: processes between two reads; who wrote what is forgotten; counted as log_writers
ARGUMENTS: Final = 512  # of a server, where the engine of 0.32.0 has 257, and keys of one of them; left out
START_BYTES: Final = 4 << 20  # of a log after the first line of a start; later lines about the start are not read
JOINED_CHARACTERS: Final = 16 * 1024  # of a broken line with those that may continue it; a parse error

# --- The files of a log, for each predictor ---------------------------------------------------------------------------
LOG_FILES: Final = 128  # followed at once; those that changed longest ago wait; counted as log_files
ROTATED_FILES: Final = 128  # of one log, the newest, to look for its last start; older ones are not read

# --- Saved responses --------------------------------------------------------------------------------------------------
REQUEST_GROUPS: Final = 32  # of adapters, or of a header; further ones are `other`

# --- Results of `vllm bench serve` ------------------------------------------------------------------------------------
RESULT_BYTES: Final = 128 * 1024 * 1024  # of a file, where 2,000 requests of 500 tokens in detail have 22 MB; refused
RESULT_FILES: Final = 1000  # of a folder; refused

# --- What `doctor` reads: a command, a manifest, two tokenizers -------------------------------------------------------
COMMAND_CHARACTERS: Final = 128 * 1024  # of a command that starts vLLM: Linux passes on no longer argument; refused
MANIFEST_DOCUMENTS: Final = 100  # of a manifest; refused
MANIFEST_LEVELS: Final = 40  # of a manifest, where a pod with affinities has 15; refused
TOKENIZER_BYTES: Final = 64 * 1024 * 1024  # of a tokenizer.json, where Gemma's has 33 MB; not compared
