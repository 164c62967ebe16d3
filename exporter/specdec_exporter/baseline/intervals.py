"""Which intervals of a recording its file keeps. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from specdec_exporter.speculation.load import Load

MOST_ROWS: Final = 1000  # of a file; a row is one interval of one engine
_USUAL_ROWS: Final = 960  # 120 moments of 8 engines
_FEWEST_MOMENTS: Final = 24

Moment = Sequence[Load]  # the intervals of all engines that end together


def thinned(moments: Sequence[Moment], most_moments: int) -> tuple[Load, ...]:
    """Return the rows of a file: ``moments``, or ``most_moments`` of them, evenly over the recording.

    Of many engines there are fewer moments, and of very many, another even part of them at each moment. Neighbours are
    not summed: a mean over minutes hides bursts, and a mean over engines hides that one is busier.
    """
    if not moments:
        return ()
    engines = max(map(len, moments))
    number = min(len(moments), most_moments, max(_USUAL_ROWS // max(engines, 1), _FEWEST_MOMENTS))
    kept = (moments[len(moments) * i // number] for i in range(number))
    return tuple(load for turn, moment in enumerate(kept) for load in _part(moment, MOST_ROWS // number, turn))


def _part(moment: Moment, most: int, turn: int) -> Moment:
    """Return ``most`` engines, evenly over all, from another one on in each ``turn``."""
    if len(moment) <= most:
        return moment
    return [moment[i] for i in sorted((turn + len(moment) * j // most) % len(moment) for j in range(most))]
