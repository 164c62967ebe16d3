"""Every scraper gets a format it asked for, announced exactly, whatever it sends."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from specdec_exporter.web.negotiation import ExpositionFormat, accepts_gzip, choose_format

TEXT = ExpositionFormat.TEXT_0_0_4
OPENMETRICS = ExpositionFormat.OPENMETRICS_1_0_0

PROMETHEUS_2_42 = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
PROMETHEUS_2_55 = (
    "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
PROMETHEUS_3_NATIVE_HISTOGRAMS = (
    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6,"
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,"
    "application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,"
    "text/plain;version=0.0.4;q=0.2,*/*;q=0.1"
)
PROMETHEUS_3_TEXT_ONLY = "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=0.0.4;q=0.5,*/*;q=0.4"
VICTORIAMETRICS = "text/plain;version=0.0.4;q=1,*/*;q=0.1"
CURL = "*/*"
FIREFOX = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"
JAVA = "text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2"


def test_content_types_are_exactly_what_prometheus_3_accepts() -> None:
    assert TEXT.content_type == "text/plain; version=0.0.4; charset=utf-8"
    assert OPENMETRICS.content_type == "application/openmetrics-text; version=1.0.0; charset=utf-8"


@pytest.mark.parametrize("accept", [PROMETHEUS_2_42, PROMETHEUS_2_55, PROMETHEUS_3, PROMETHEUS_3_NATIVE_HISTOGRAMS])
def test_prometheus_gets_openmetrics(accept: str) -> None:
    assert choose_format(accept) is OPENMETRICS


@pytest.mark.parametrize("accept", [None, "", VICTORIAMETRICS, CURL, FIREFOX, JAVA, PROMETHEUS_3_TEXT_ONLY])
def test_everyone_who_does_not_ask_for_openmetrics_gets_text(accept: str | None) -> None:
    assert choose_format(accept) is TEXT


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("application/openmetrics-text;q=0,*/*", TEXT),
        ("text/plain;q=0,*/*;q=0.1", OPENMETRICS),
        ("application/openmetrics-text;version=1.0.0;q=0.0,application/openmetrics-text;q=1,text/plain;q=0.1", TEXT),
        ("*/*;q=0.9,application/openmetrics-text;q=0.1", TEXT),
        ("application/openmetrics-text;q=0.9,text/*;q=0.95", TEXT),
        ("application/*", OPENMETRICS),
        # ties: the closer name, then OpenMetrics if it is named
        ("text/plain,application/openmetrics-text", OPENMETRICS),
        ("text/plain;version=0.0.4,application/openmetrics-text;version=0.0.1", OPENMETRICS),
        ("text/plain,*/*", TEXT),
        ("application/openmetrics-text,*/*", OPENMETRICS),
        ("application/*,text/*", TEXT),
        # versions: 0.0.1 is answered with 1.0.0; one we do not write is as good as not asked for
        ("application/openmetrics-text;version=0.0.1", OPENMETRICS),
        ("application/openmetrics-text;version=2.0.0", TEXT),
        ("application/openmetrics-text;version=9.9.9,application/openmetrics-text;version=1.0.0;q=0.1", OPENMETRICS),
        ("application/openmetrics-text;version=2.0.0,text/plain;version=0.0.4;q=0.1", TEXT),
        ("application/openmetrics-text;version=abc", TEXT),
        ("text/plain;version=9.9.9,application/openmetrics-text;q=0.1", OPENMETRICS),
        # spelling
        (' Application/OpenMetrics-Text ; Version="1.0.0" ; Q=0.7 , text/plain;q=0.6 ', OPENMETRICS),
        ('text/plain;note="a,b;q=0",application/openmetrics-text;q=0.5', TEXT),
        ("application/openmetrics-text;version=1.0.0;escaping=values;charset=utf-8", OPENMETRICS),
        # nonsense
        ("application/openmetrics-text;q=nan,text/plain;q=0.1", TEXT),
        ("application/openmetrics-text;q=-1", TEXT),
        ("application/openmetrics-text;q=7,text/plain;q=0.1", TEXT),
        ("image/png", TEXT),
        (",,;;==,q=0", TEXT),
        ("text/plain;q=0,application/openmetrics-text;q=0", TEXT),
    ],
)
def test_quality_closeness_and_version_decide(accept: str, expected: ExpositionFormat) -> None:
    assert choose_format(accept) is expected


_WORDS = ["application/openmetrics-text", "text/plain", "*/*", "version=", "q=", "1.0.0", "0.0.4"]
_SIGNS = [";", ",", '"', "\\", "=", " "]
_header_soup = st.lists(st.sampled_from(_WORDS + _SIGNS) | st.text(max_size=5)).map("".join)


@given(_header_soup)
@example('"' * 200 + "\\")
def test_no_header_raises(header: str) -> None:
    assert choose_format(header) in ExpositionFormat
    assert accepts_gzip(header) in {True, False}


@given(st.permutations(PROMETHEUS_2_55.split(",")))
def test_the_order_of_elements_does_not_matter(elements: list[str]) -> None:
    assert choose_format(",".join(elements)) is OPENMETRICS


@given(openmetrics=st.integers(0, 1000), text=st.integers(0, 1000))
def test_the_higher_quality_wins(openmetrics: int, text: int) -> None:
    accept = f"application/openmetrics-text;q={openmetrics / 1000:.3f},text/plain;q={text / 1000:.3f}"
    expected = OPENMETRICS if openmetrics >= text and openmetrics > 0 else TEXT
    assert choose_format(accept) is expected


@pytest.mark.parametrize(
    ("accept_encoding", "welcome"),
    [
        (None, False),
        ("gzip, deflate, br, zstd", True),
        ("GZIP;q=0.001", True),
        ("x-gzip", True),
        ("*", True),
        ("identity", False),
        ("deflate, br", False),
        ("gzip;q=0", False),
        ("gzip;q=0.0, *", False),
        ("*;q=0", False),
        ("gzip;q=0.5, identity;q=0", True),
        ("gzip;q=0.2, identity;q=0.9", False),
        ("gzip;q=nonsense", False),
    ],
)
def test_gzip_only_where_it_is_welcome(accept_encoding: str | None, welcome: bool) -> None:
    assert accepts_gzip(accept_encoding) is welcome
