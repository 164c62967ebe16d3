"""Following the log files of one predictor through everything that happens to log files.

Files are known by identity, paths are only where to look. A file that has left its path is kept open, for a writer may
still hold it (a handler that has not reopened yet; another process of a multi-process ``RotatingFileHandler``, which may
sit on ``.1`` or ``.2`` for good). Wherever it cannot be told whether bytes were read before, they count as read.
"""

from __future__ import annotations

import asyncio
import contextlib
import glob
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from specdec_exporter.predictor.counters import ReaderCounters
from specdec_exporter.predictor.events import EngineConfig, Event
from specdec_exporter.predictor.history import ConfigSearch
from specdec_exporter.predictor.lines import CHUNK_BYTES, LineCutter, Scanner
from specdec_exporter.predictor.logfile import Identity, LogFile, Position, open_regular
from specdec_exporter.predictor.positions import PositionFile
from specdec_exporter.predictor.rotation import Place, Surroundings, is_rotated_name, rotated_siblings

_logger = logging.getLogger(__name__)
