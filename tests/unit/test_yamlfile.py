"""One reader for every YAML file: any bytes are a value, or one line that names the file and the line or the key."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from specdec_exporter.baseline.reading import read_baseline
from specdec_exporter.config import Duration, load_settings
from specdec_exporter.errors import BaselineError, ConfigError, SpecdecError
from specdec_exporter.web.webconfig import load_web_config
from specdec_exporter.yamlfile import MAX_BYTES, MAX_LEVELS, MAX_LINES, MAX_MISTAKES, MAX_VALUES, convert, parse_yaml


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    size: int = 1
    label: str | None = None


class Whole(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str = ""
    count: int = 0
    share: float = 0.0
    switch: bool = False
    colour: Literal["red", "green"] = "red"
    wait: Duration = Duration(1)
    names: tuple[str, ...] = ()
    words: dict[str, str | int] = {}
    part: Part = Part()
    parts: tuple[Part, ...] = ()


def read(text: str | bytes) -> Whole:
    content = text.encode() if isinstance(text, str) else text
    return convert(parse_yaml(content, "FILE", ConfigError), Whole, "FILE", ConfigError)


def refusal(text: str | bytes) -> str:
    with pytest.raises(ConfigError) as caught:
        read(text)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- values ---


def test_a_document_becomes_what_its_types_say() -> None:
    assert read(
        """
        name: chat
        count: 1000
        share: 1e-05
        switch: yes
        colour: green
        wait: 2m
        names: [a, '7', 2026-01-01, 010, 1:30]
        words: {a: 0, b: 1; mode, 7: x}
        part: {size: 3, label: null}
        parts: [{label: x}, {}]
        """
    ) == Whole(
        name="chat",
        count=1000,
        share=1e-5,
        switch=True,
        colour="green",
        wait=Duration(120),
        names=("a", "7", "2026-01-01", "010", "1:30"),
        words={"a": 0, "b": "1; mode", "7": "x"},
        part=Part(size=3),
        parts=(Part(label="x"), Part()),
    )


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "null", "{}"])
def test_what_is_empty_is_the_default(text: str) -> None:
    assert read(text) == Whole()


# --- what is refused ---


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nmae: x", "FILE: nmae: unknown key, expected one of name, count, "),
        ("\npart:\n  syze: 1", "FILE: part.syze: unknown key, expected one of size, label"),
        ("name: a\nname: a", "FILE, line 2: name: expected every key once, found it a second time"),
        ("[a]: b", "FILE, line 1: expected a word as the key, found a mapping or a list"),
        ("- a", "FILE: top level: expected a mapping, found a list"),
        ("name: 7", "FILE: name: expected text in quotes, found a number"),
        ('name: "\\ud800"', "FILE, line 1: expected printable text"),
        ("name: a\u202eb", "FILE, line 1: expected printable text"),
        ("name: !!python/name:os.system x", "FILE, line 1: expected no tags, found tag:yaml.org,2002:python/name"),
        ("name: &a x\nnames: [*a]", "FILE, line 1: expected no anchors and aliases, found a"),
        ("count: 2.5", "FILE: count: expected a whole number, found a number"),
        ("count: " + "9" * 400, "FILE: count: expected a whole number, found text"),
        ("share: 1e999", "FILE: share: expected a number, found text"),
        ("wait: soon", "FILE: wait: expected a duration such as 30s, 5m or 1h30m, found 'soon'"),
        ("names:\n- a\n- 7", "FILE: names[1]: expected text in quotes, found a number"),
        ("words: {a: []}", "FILE: words[...]: expected a whole number or text, found a list"),
        ("a: [", "FILE, line 1: is not YAML: "),
        ("a: 1\n---\nb: 1", "FILE, line 2: is not YAML: expected a single document"),
        ("a\nb\x00", "FILE, line 2: is not YAML: special characters are not allowed"),
        (b"name: x\nname: \xe9", "FILE, line 2: is not YAML: "),
        ('"\\UFFFFFFFF"', "FILE: is not YAML: a number or an escaped character is too large"),
        ("%YAML 1." + "9" * 5000 + "\n--- a", "FILE: is not YAML: a number or an escaped character is too large"),
        ("[" + "1," * MAX_VALUES + "]", f"FILE, line 1: expected at most {MAX_VALUES} values, found more"),
        ("[" * 3000, f"FILE, line 1: expected at most {MAX_LEVELS} levels, found more"),
        ("#" * (MAX_BYTES + 1), f"FILE: expected at most {MAX_BYTES} bytes, found more"),
        ("\n" * (MAX_LINES + 1), f"FILE: expected at most {MAX_LINES} lines, found more"),
    ],
)
def test_a_fault_is_one_line_with_file_and_place(text: str | bytes, words: str) -> None:
    assert words in refusal(text)


# --- every kind of file ---

READERS: list[tuple[Callable[[str], object], type[SpecdecError]]] = [
    (lambda path: load_settings(path, {}), ConfigError),
    (load_web_config, ConfigError),
    (read_baseline, BaselineError),
]
kinds = pytest.mark.parametrize(("reader", "error"), READERS, ids=["config", "web", "baseline"])


@kinds
@pytest.mark.parametrize("name", ["missing.yaml", ".", "a\x00b", "\ud800"])
def test_a_file_that_cannot_be_read_is_one_clear_line(
    reader: Callable[[str], object], error: type[SpecdecError], name: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match="cannot be read: ") as caught:
        reader(str(tmp_path / name))
    str(caught.value).encode()


WORDS = [
    *("web", "listen_addresses", "predictors", "name", "url", "timeout", "log_from", "window", "settings", "incidents"),
    *("kind", "collapse", "at", "acceptance", "latency", "k", "load", "tls_server_config", "cert_file", "headers"),
    *("basic_auth_users", "http_server_config", "recorded_at", "buckets", "count", "+Inf", "1h", "0.5", "9" * 400),
]
MARKS = [": ", ":", "\n", "\n  ", "- ", "{", "}", "[", "]", ", ", "&a ", "*a", "<<", "<<: *a", "!!int ", "!!map "]
MARKS += ["!!timestamp ", "!x ", "2026-13-45", '"', "'", "|", ">", "? ", "~", "%YAML 1.2\n", "---\n", "...", "\\ud800"]
SOUP = st.lists(st.sampled_from(WORDS + MARKS) | st.text(max_size=3), max_size=30).map(
    lambda parts: "".join(parts).encode("utf-8", "surrogatepass")
)


def as_yaml_says(value: Any) -> Any:
    """What PyYAML gives for the same text, but for keys, dates and odd numbers."""
    if isinstance(value, dict):
        return [as_yaml_says(each) for each in value.values()]
    if isinstance(value, list):
        return [as_yaml_says(each) for each in value]
    return value if value is None or isinstance(value, bool) else ...


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=300) | SOUP)
@example(b"!!int ''")
@example(b"!!timestamp x")
@example(b"? &a a\n: *a")
@example(b"=")
@example(b"<<: <<")
@example(b"!<> a")
def test_what_is_accepted_is_what_yaml_says(content: bytes) -> None:
    with contextlib.suppress(ConfigError):
        ours = parse_yaml(content, "FILE", ConfigError)
        try:
            theirs = yaml.safe_load(content)
        except (yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError):  # dates, and merged keys
            return
        if b"<<" not in content:
            assert as_yaml_says(ours) == as_yaml_says(theirs)


def test_all_mistakes_are_told_up_to_a_bound() -> None:
    with pytest.raises(ConfigError) as caught:
        read("nmae: x\ncount: a\nwait: soon\npart: {syze: 1, label: 7}\nparts: [{}, {size: b}, 3]\ncolour: rd")
    keys = "name, count, share, switch, colour, wait, names, words, part, parts"
    assert caught.value.args == (
        f"FILE: nmae: unknown key, expected one of {keys}: did you mean name?",
        "FILE: count: expected a whole number, found text",
        "FILE: wait: expected a duration such as 30s, 5m or 1h30m, found 'soon'",
        "FILE: part.syze: unknown key, expected one of size, label: did you mean size?",
        "FILE: part.label: expected text in quotes, found a number",
        "FILE: parts[1].size: expected a whole number, found text",
        "FILE: parts[2]: expected a mapping, found a number",
        "FILE: colour: expected one of green, red, found 'rd': did you mean red?",
    )
    assert str(caught.value) == "; ".join(caught.value.args)
    with pytest.raises(ConfigError) as caught:
        read("names: [" + "1, " * 1000 + "]")
    assert len(caught.value.args) == MAX_MISTAKES
