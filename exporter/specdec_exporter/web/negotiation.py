"""Which exposition format and coding a scraper gets: pure functions on request headers.

Ours, because ``prometheus_client.exposition.choose_encoder`` (0.21 to 0.26) ignores q-values, announces whatever
version it was asked for, and raises on a version that is not a number.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator
from typing import NamedTuple

# A comma or semicolon inside a quoted string separates nothing (RFC 9110, section 5.6).
_ELEMENT = re.compile(r'(?:[^,"]|"(?:[^"\\]|\\.)*"?)+')
_PARAMETER = re.compile(r'(?:[^;"]|"(?:[^"\\]|\\.)*"?)+')
_QUALITY = re.compile(r"0?\.\d+|[01](?:\.0*)?")


class ExpositionFormat(enum.Enum):
    """What we can write; the value is the exact ``Content-Type``, which Prometheus 3 insists on.

    An ``escaping`` parameter is never announced: our names are plain ``[a-z_]``, so every escaping scheme leaves them
    as they are, and a scraper that asks for one reads the answer without it.
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
    version: str  # what we write
    compatible_version: str  # whoever asks for this one can read what we write


_OFFERS = (  # the first one wins a tie
    # 1.0.0 of the text format only adds quoted names to 0.0.4; the OpenMetrics draft 0.0.1 became 1.0.0.
    _Offer(ExpositionFormat.TEXT_0_0_4, "text/plain", "0.0.4", "1.0.0"),
    _Offer(ExpositionFormat.OPENMETRICS_1_0_0, "application/openmetrics-text", "1.0.0", "0.0.1"),
)

# How closely a media range names an offer: the closest range decides on its quality (RFC 9110, section 12.5.1).
_ANY, _ANY_SUBTYPE, _NAMED, _COMPATIBLE_VERSION, _EXACT_VERSION = range(1, 6)


def choose_format(accept: str | None) -> ExpositionFormat:
    """Choose by an ``Accept`` header: the highest q-value wins, ``q=0`` excludes.

    Ties go to the format that is named more closely (with version, without, by a wildcard), then to OpenMetrics if it
    is named at all. Elements that are malformed or ask for a version we do not write are passed over. Where nothing we
    write is acceptable the answer is text 0.0.4, which every scraper reads. Never raises.
    """
    ranges = list(_elements(accept or ""))

    def rank(offer: _Offer) -> tuple[float, int, bool]:
        closeness, quality = _match(offer, ranges)
        asked_for = closeness >= _NAMED and offer.exposition is ExpositionFormat.OPENMETRICS_1_0_0
        return quality, min(closeness, _COMPATIBLE_VERSION), asked_for

    best = max(_OFFERS, key=rank)
    return best.exposition if rank(best)[0] > 0 else ExpositionFormat.TEXT_0_0_4


def accepts_gzip(accept_encoding: str | None) -> bool:
    """Whether an ``Accept-Encoding`` header welcomes gzip at least as much as no coding at all; never raises."""
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
                    break  # not a quality: the element cannot be weighed
        else:
            yield _Element(value.strip().lower(), version, quality)


def _match(offer: _Offer, ranges: list[_Element]) -> tuple[int, float]:
    """Closeness and quality of the range that names the offer most closely; ``(0, 0)`` where none does."""
    matches = ((_closeness(offer, element), element.quality) for element in ranges)
    return max((match for match in matches if match[0]), default=(0, 0.0))


def _closeness(offer: _Offer, element: _Element) -> int:
    if element.value in {"*/*", "*"}:  # a lone "*" comes from java.net.HttpURLConnection
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
