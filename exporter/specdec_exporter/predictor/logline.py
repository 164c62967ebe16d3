r"""One line of a predictor's log -> what it said. Pure; nothing here raises on any bytes.

A line counts only if vLLM itself wrote it: the message begins directly after the line's first header, or at the line's
start where the operator's formatter prints none. A line that some user's text quotes never does.

Shapes, with the releases that print them (``prefix`` is what log collectors and VLLM_LOGGING_PREFIX put in front)::

    [prefix] [(APIServer pid=1) ]INFO 11-20 21:44:52 [metrics.py:96] MESSAGE        0.8.0 and later
    [prefix] INFO 11-20 21:44:52 metrics.py:489] MESSAGE                            up to 0.7.3
    {"asctime": "...", "levelname": "INFO", "name": "vllm....", "message": "MESSAGE", ...}
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from specdec_exporter.predictor.events import (
    EngineConfig,
    EngineStats,
    Event,
    Malformed,
    PredictorWarning,
    RequestParams,
    SpecDecoding,
)
from specdec_exporter.predictor.messages import read_message

_LEVEL: Final = "TRACE|DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL"
_HEADER: Final = re.compile(
    rf"(?P<level>{_LEVEL})[ \t]+(?P<timestamp>\d\d-\d\d \d\d:\d\d:\d\d)[ \t]+"
    r"(?:\[(?P<tag>[^\]\[\s]+):\d+\]|(?P<old_tag>[^\]\[\s]+):\d+\]) ",
    re.ASCII,
)
