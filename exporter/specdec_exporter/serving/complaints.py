"""What is said of failing reads: each change once, however often it recurs."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from specdec_exporter.errors import FetchError

LOG = logging.getLogger("specdec")

SOUND_SECONDS = 60.0  # a predictor that can be read for so long is well again; one that flaps is not


class Complaints:
    """Logs why a predictor cannot be read when the reason changes, and that it can be when that lasts.

    ``clock`` gives monotonic seconds.
    """

    def __init__(self, predictor: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._predictor = predictor
        self._clock = clock
        self._said: str | None = None  # the last reason, until it is well again
        self._sound_since: float | None = None

    def failed(self, error: FetchError) -> None:
        """Take in a failed read."""
        self._sound_since = None
        if error.reason != self._said:
            self._said = error.reason
            about = {"predictor": self._predictor, "reason": str(error)}
            LOG.warning("predictor's metrics cannot be read", extra=about)

    def succeeded(self) -> None:
        """Take in a good read."""
        if self._said is None:
            return
        now = self._clock()
        if self._sound_since is None:
            self._sound_since = now
        if now - self._sound_since >= SOUND_SECONDS:
            self._said = self._sound_since = None
            LOG.info("predictor's metrics are readable again", extra={"predictor": self._predictor})
