"""A predictor's ``/metrics`` as it goes on counting: the bytes of one scrape, with other numbers every time."""

from __future__ import annotations

import re

from support.builders import CAPTURES

ONE_ENGINE = CAPTURES / "0.32.0-draft_model-k3" / "metrics-9-temp1.txt"
TWO_ENGINES = CAPTURES / "0.32.0-draft_model-dp2-api1" / "metrics-2-after.txt"

# Of counters and histograms; multiplying them all by one number leaves buckets, sums and counts in agreement.
_CUMULATIVE = re.compile(rb"^([a-z_:]+_(?:total|bucket|sum|count)(?:\{.*\})?) (.*)$", re.MULTILINE)


def count_up(body: bytes, factor: int) -> bytes:
    """Return ``body`` with every counter and histogram ``factor`` times as far."""
    return _CUMULATIVE.sub(lambda sample: b"%s %r" % (sample[1], float(sample[2]) * factor), body)
