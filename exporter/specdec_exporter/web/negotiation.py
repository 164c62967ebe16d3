"""Choose the exposition format and coding for a scraper: pure functions on request headers.

``prometheus_client.exposition.choose_encoder`` (0.21 to 0.26) ignores q-values, announces any version that was asked
for, and raises on a version that is not a number.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator
from typing import NamedTuple

# A comma or semicolon inside a quoted string does not separate (RFC 9110, section 5.6).
_ELEMENT = re.compile(r'(?:[^,"]|"(?:[^"\\]|\\.)*"?)+')
_PARAMETER = re.compile(r'(?:[^;"]|"(?:[^"\\]|\\.)*"?)+')
_QUALITY = re.compile(r"0?\.\d+|[01](?:\.0*)?")


class ExpositionFormat(enum.Enum):
    """The formats that we write; the value is the exact ``Content-Type`` that Prometheus 3 expects.

    It has no ``escaping`` parameter: no escaping scheme changes our names, which consist of ``[a-z_]``.
    """

    TEXT_0_0_4 = "text/plain; version=0.0.4; charset=utf-8"
    OPENMETRICS_1_0_0 = "application/openmetrics-text; version=1.0.0; charset=utf-8"

    @property
    def content_type(self) -> str:
        """The value of the response's ``Content-Type`` header."""
        return self.value


class _Offer(NamedTuple):
    exposition: ExpositionFormat
    media_type: str
    version: str
    compatible_version: str  # a scraper that asks for this version can read ``version`` too


_OFFERS = (  # the first one wins a tie
    # 1.0.0 of the text format only adds quoted names to 0.0.4; the OpenMetrics draft 0.0.1 became 1.0.0.
    _Offer(ExpositionFormat.TEXT_0_0_4, "text/plain", "0.0.4", "1.0.0"),
    _Offer(ExpositionFormat.OPENMETRICS_1_0_0, "application/openmetrics-text", "1.0.0", "0.0.1"),
)

# How closely a media range names an offer: the closest range decides on its quality (RFC 9110, section 12.5.1).
_ANY, _ANY_SUBTYPE, _NAMED, _COMPATIBLE_VERSION, _EXACT_VERSION = range(1, 6)


def choose_format(accept: str | None) -> ExpositionFormat:
    """Choose by an ``Accept`` header: the highest q-value wins, ``q=0`` excludes. Never raises.

    Of equal q-values, the more specific name wins (with version, without version, wildcard), then OpenMetrics if the
    header names it. Malformed elements and versions that we do not write are ignored. If the header accepts none of our
    formats, the result is text 0.0.4, which every scraper reads.
    """
    ranges = list(_elements(accept or ""))

    def rank(offer: _Offer) -> tuple[float, int, bool]:
        closeness, quality = _match(offer, ranges)
        asked_for = closeness >= _NAMED and offer.exposition is ExpositionFormat.OPENMETRICS_1_0_0
        return quality, min(closeness, _COMPATIBLE_VERSION), asked_for

    best = max(_OFFERS, key=rank)
    return best.exposition if rank(best)[0] > 0 else ExpositionFormat.TEXT_0_0_4


def accepts_gzip(accept_encoding: str | None) -> bool:
    """Whether an ``Accept-Encoding`` header prefers gzip, or accepts it as much as no coding. Never raises."""
    qualities = {element.value: element.quality for element in _elements(accept_encoding or "")}
    gzip = qualities.get("gzip", qualities.get("x-gzip", qualities.get("*", 0.0)))
    return gzip > 0 and gzip >= qualities.get("identity", 0.0)


class _Element(NamedTuple):
    value: str  # lower case, without parameters
    version: str | None
    quality: float


def _elements(header: str) -> Iterator[_Element]:
    for element in _ELEMENT.findall(header):
        value, *parameters = _PARAMETER.findall(element) or [""]
        version, quality = None, 1.0
        for parameter in parameters:
            name, _, text = parameter.partition("=")
            text = text.strip().strip('"')
            match name.strip().lower():
                case "version":
                    version = text
                case "q" if _QUALITY.fullmatch(text):
                    quality = float(text)
                case "q":
                    break  # malformed: ignore the element
        else:
            yield _Element(value.strip().lower(), version, quality)


def _match(offer: _Offer, ranges: list[_Element]) -> tuple[int, float]:
    """Return closeness and quality of the most specific range for the offer; ``(0, 0)`` without one."""
    matches = ((_closeness(offer, element), element.quality) for element in ranges)
    return max((match for match in matches if match[0]), default=(0, 0.0))


def _closeness(offer: _Offer, element: _Element) -> int:
    if element.value in {"*/*", "*"}:  # java.net.HttpURLConnection sends "*"
        return _ANY
    if element.value == offer.media_type.partition("/")[0] + "/*":
        return _ANY_SUBTYPE
    if element.value != offer.media_type:
        return 0
    if element.version is None:
        return _NAMED
    if element.version == offer.version:
        return _EXACT_VERSION
    return _COMPATIBLE_VERSION if element.version == offer.compatible_version else 0
