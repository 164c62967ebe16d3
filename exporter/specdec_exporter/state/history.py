"""The windows of the last hour, for the page's sparkline."""

from __future__ import annotations

import msgspec

from specdec_exporter.speculation.figures import Figures
from specdec_exporter.state.status import HistoryPoint

HISTORY_SECONDS = 3600.0
HISTORY_POINTS = 121  # at most; beyond it every second one is dropped


class History:
    """At most :data:`HISTORY_POINTS` points. Their timestamps are monotonic seconds: the wall clock may be set."""

    def __init__(self) -> None:
        self._points: list[HistoryPoint] = []
        self._spacing = 0.0  # seconds between two points, at least

    def keep(self, now: float, window: Figures | None) -> None:
        """Keep the window's figures as the newest point. It replaces a point that is too close."""
        point, kept = _point(now, window), self._points
        if point is None:
            return
        if len(kept) > 1 and point.timestamp - kept[-2].timestamp < self._spacing:
            kept.pop()
        kept = [earlier for earlier in kept if earlier.timestamp >= point.timestamp - HISTORY_SECONDS] + [point]
        if len(kept) > HISTORY_POINTS:
            kept = kept[::-2][::-1]  # the newest stays
            # A little less than their mean distance: scrapes are never quite even.
            self._spacing = 0.9 * (kept[-1].timestamp - kept[0].timestamp) / (len(kept) - 1)
        self._points = kept

    def shown(self, now: float, window: Figures | None, ahead: float) -> tuple[HistoryPoint, ...]:
        """Return the points with Unix times, with the window as it is now as the newest.

        ``ahead``: the wall clock less the monotonic one, seconds.
        """
        point = _point(now, window)
        points = (*self._points[:-1], point) if point else self._points
        return tuple(msgspec.structs.replace(earlier, timestamp=earlier.timestamp + ahead) for earlier in points)


def _point(now: float, window: Figures | None) -> HistoryPoint | None:
    if window is None:
        return None
    return HistoryPoint(
        timestamp=now, acceptance_ratio=window.acceptance_ratio, mean_acceptance_length=window.mean_acceptance_length
    )
