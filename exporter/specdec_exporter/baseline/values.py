"""Values of a baseline's file, read strictly: an error names line, key, the expected and the found value."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from specdec_exporter.histogram import Histogram, le
from specdec_exporter.yamlfile import Node, number_of

_SUM_TOLERANCE = 1e-6  # relative; rounding of a sum over millions of floats


def number(node: Node) -> float:
    """Return a number of at least 0."""
    value = node.number()
    if value < 0:
        node.fail("a number of at least 0", f"{value:g}")
    return value


def positive(node: Node) -> int:
    """Return a whole number above 0."""
    value = node.whole_number()
    if not 0 < value < 2**31:
        node.fail("a whole number above 0", str(value))
    return value


def column(node: Node, blocks: int) -> list[float]:
    """Return a list with a number for each block."""
    values = [number(item) for item in node.items()]
    if len(values) != blocks:
        node.fail(f"{blocks} values, one per block", str(len(values)))
    return values


def histogram(node: Node) -> Histogram:
    """Return a histogram with at least one value."""
    parts = node.mapping(required=("count", "sum", "buckets"))
    buckets = dict(_buckets(parts["buckets"]))
    counts = [number(bucket) for bucket in buckets.values()]
    _check_rising(list(zip(buckets.values(), counts, strict=True)))
    found = Histogram(tuple(buckets), tuple(counts), number(parts["sum"]))
    count = number(parts["count"])
    if count != found.count or not count:
        parts["count"].fail(f"the count of +Inf, {found.count:g}, and at least one request", f"{count:g}")
    return _checked(found, parts["sum"])


def histograms(node: Node, bounds: tuple[float, ...], blocks: int) -> list[Histogram]:
    """Return a histogram with ``bounds`` for each block, of lists with a value per block; it may be empty.

    A bucket is left out if no block has a value in it: it then counts as many as the one below.
    """
    parts = node.mapping(required=("sum", "buckets"))
    given = dict(_buckets(parts["buckets"]))
    for bound, bucket in given.items():
        if bound not in bounds:
            bucket.fail("a bound of the whole recording", le(bound))
    columns = {bound: column(bucket, blocks) for bound, bucket in given.items()}
    sums, found = column(parts["sum"], blocks), []
    for i, sum_node in enumerate(parts["sum"].items()):
        _check_rising([(bucket, columns[bound][i]) for bound, bucket in given.items()])
        counts = itertools.accumulate((columns[bound][i] if bound in columns else 0.0 for bound in bounds), max)
        found.append(_checked(Histogram(bounds, tuple(counts), sums[i]), sum_node))
    return found


def _buckets(node: Node) -> Iterator[tuple[float, Node]]:
    """Yield the bound of each bucket and its node."""
    last = 0.0
    for name, bucket in node.entries().items():
        bound = math.inf if name == "+Inf" else number_of(name)
        if bound is None or bound <= last:
            bucket.fail(f"a bound above {le(last) if last else 0}, or +Inf", repr(name))
        yield bound, bucket
        last = bound
    if last != math.inf:
        node.fail("+Inf as the last bucket", le(last) if last else "no bucket")


def _check_rising(counts: list[tuple[Node, float]]) -> None:
    for (_, before), (node, count) in itertools.pairwise(counts):
        if count < before:
            node.fail(f"a cumulative count of at least {before:g}", f"{count:g}")


def _checked(found: Histogram, node: Node) -> Histogram:
    """Return ``found`` if its sum, which ``node`` holds, fits its buckets."""
    low, high = found.sum_bounds()
    if not low - _SUM_TOLERANCE * low <= found.sum <= high + _SUM_TOLERANCE * high:
        node.fail(f"{low:g} to {high:g}, as the buckets allow", f"{found.sum:g}")
    return found
