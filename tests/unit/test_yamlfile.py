"""One reader for every YAML file: any bytes are a value, or one line that names the file, the line and the key."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from specdec_exporter.baseline.file import read_baseline
from specdec_exporter.config import load_settings
from specdec_exporter.errors import BaselineError, ConfigError, SpecdecError
from specdec_exporter.web.webconfig import load_web_config
from specdec_exporter.yamlfile import MAX_BYTES, MAX_DEPTH, MAX_LINES, MAX_VALUES, AsWritten, Node, parse_yaml


class Part(msgspec.Struct, frozen=True):
    size: int = 1
    label: str | None = None


class Whole(msgspec.Struct, frozen=True):
    name: str = ""
    count: int = 0
    share: float = 0.0
    switch: bool = False
    colour: Literal["red", "green"] = "red"
    wait: Annotated[float, float] = 0.0
    names: tuple[str, ...] = ()
    rates: float | tuple[float, ...] = 0.0
    words: dict[str, AsWritten] = {}
    part: Part = Part()
    parts: tuple[Part, ...] = ()


def read(text: str | bytes) -> Any:
    return parse_yaml(text.encode() if isinstance(text, str) else text, "FILE", ConfigError).read(Whole)


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
        count: 1_000
        share: 1e-05
        switch: yes
        colour: green
        wait: "2.5"
        names: [a, '7']
        rates: [0.5, .25]
        words: {a: 0, b: 1; mode, c: 2026-01-01}
        part: {size: 3, label: null}
        parts: [{label: x}, {}]
        """
    ) == Whole(
        name="chat",
        count=1000,
        share=1e-5,
        switch=True,
        colour="green",
        wait=2.5,
        names=("a", "7"),
        rates=(0.5, 0.25),
        words={"a": "0", "b": "1; mode", "c": "2026-01-01"},
        part=Part(size=3),
        parts=(Part(label="x"), Part()),
    )


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "null", "{}", "part:\nparts:\nnames:\n"])
def test_what_is_empty_is_the_default(text: str) -> None:
    assert read(text) == Whole()


def test_an_alias_stands_for_its_anchor_and_a_merge_gives_way_to_keys_of_its_own() -> None:
    text = "part: &a {size: 3, label: x}\nparts: [*a, {<<: *a, size: 4}, {<<: [{size: 5}, *a]}]"
    assert read(text).parts == (Part(3, "x"), Part(4, "x"), Part(5, "x"))


# --- what is refused ---


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nmae: x", "FILE, line 1: nmae: unknown key, expected one of name, count, "),
        ("\npart:\n  syze: 1", "FILE, line 3: part.syze: unknown key, expected one of size, label"),
        ("name: a\nname: a", "FILE, line 2: name: expected every key once, found it a second time"),
        ("[a]: b", "FILE, line 1: top level: expected a word as the key, found a list"),
        ('"\\ud800": b', "FILE, line 1: top level: expected a word as the key, found text"),
        ("- a", "FILE, line 1: top level: expected a mapping, found a list"),
        ("just text", "FILE, line 1: top level: expected a mapping, found text"),
        ("name: 7", "FILE, line 1: name: expected text in quotes, found a number"),
        ("name: no", "FILE, line 1: name: expected text in quotes, found true or false"),
        ("name: 2026-13-45", "FILE, line 1: name: expected text in quotes, found a date"),
        ("name:", "FILE, line 1: name: expected text, found null"),
        ("name: [a]", "FILE, line 1: name: expected text, found a list"),
        ('name: "\\ud800"', "FILE, line 1: name: contains a line break or another control character"),
        ('name: "\\x1b[2J"', "FILE, line 1: name: contains a line break or another control character"),
        ("name: |\n  a\n  b", "FILE, line 1: name: contains a line break or another control character"),
        ("name: !secret x", "FILE, line 1: expected no tags, found !secret"),
        ("name: !!python/name:os.system x", "FILE, line 1: expected no tags, found tag:yaml.org,2002:python/name"),
        ("!!int name: x", "FILE, line 1: expected no tags, found tag:yaml.org,2002:int"),
        ("name: =", "FILE, line 1: name: expected text in quotes, found ="),
        ("count: 2.5", "FILE, line 1: count: expected a whole number, found '2.5'"),
        ("count: 9223372036854775808", "FILE, line 1: count: expected a whole number"),
        ("count: " + "9" * 400, "FILE, line 1: count: expected a finite number, found '999"),
        ("count: 010", "FILE, line 1: count: expected a finite number, found '010'"),
        ("count: 1:30", "FILE, line 1: count: expected a finite number, found '1:30'"),
        ("share: .inf", "FILE, line 1: share: expected a finite number, found '.inf'"),
        ("share: 1e999", "FILE, line 1: share: expected a finite number, found '1e999'"),
        ("share: '1'", "FILE, line 1: share: expected a finite number, found '1'"),
        ("share: true", "FILE, line 1: share: expected a finite number, found 'true'"),
        ("switch: maybe", "FILE, line 1: switch: expected true or false, found 'maybe'"),
        ("switch: 'true'", "FILE, line 1: switch: expected true or false, found 'true'"),
        ("colour: blue", "FILE, line 1: colour: expected one of red, green, found 'blue'"),
        ("wait: {}", "FILE, line 1: wait: expected a single value, found a mapping"),
        ("wait: soon", "FILE, line 1: wait: could not convert string to float: 'soon'"),
        ("names: a", "FILE, line 1: names: expected a list, found text"),
        ("names:\n- a\n- 7", "FILE, line 3: names[1]: expected text in quotes, found a number"),
        ("parts:\n- {}\n- size: x", "FILE, line 3: parts[1].size: expected a finite number, found 'x'"),
        ("part: {<<: 1}", "FILE, line 1: part: expected a mapping, found a number"),
        ("part: {<<: {size: 1, size: 2}}", "FILE, line 1: part.size: expected every key once"),
        ("a: [", "FILE, line 1: is not YAML: "),
        ("a: 1\n---\nb: 1", "FILE, line 2: is not YAML: expected a single document"),
        ("name: @", "FILE, line 1: is not YAML: "),
        ("name: *a", "FILE, line 1: is not YAML: found undefined alias 'a'"),
        ("a\nb\x00", "FILE, line 2: is not YAML: special characters are not allowed"),
        (b"name: x\nname: \xe9", "FILE, line 2: is not YAML: "),
        (b"\xff\xfe\x00", "FILE, line 1: is not YAML: "),
        ('"\\UFFFFFFFF"', "FILE: is not YAML: a number or an escaped character is too large"),
        ("%YAML 1." + "9" * 5000 + "\n--- a", "FILE: is not YAML: a number or an escaped character is too large"),
        ("&a [*a]", f"FILE, line 1: expected at most {MAX_VALUES} values, found more"),
        ("&a {<<: *a}", f"FILE, line 1: expected at most {MAX_VALUES} values, found more"),
        ("[" + "1," * MAX_VALUES + "]", f"FILE, line 1: expected at most {MAX_VALUES} values, found more"),
        ("[" * 3000, f"FILE, line 1: expected at most {MAX_DEPTH} levels, found more"),
        ("- " * 3000, f"FILE, line 1: expected at most {MAX_DEPTH} levels, found more"),
        ("#" * (MAX_BYTES + 1), f"FILE: expected at most {MAX_BYTES} bytes, found more"),
        ("\n" * (MAX_LINES + 1), f"FILE: expected at most {MAX_LINES} lines, found more"),
    ],
)
def test_a_fault_is_one_line_with_file_line_and_key(text: str | bytes, words: str) -> None:
    assert words in refusal(text)


@pytest.mark.parametrize("item", ["[ITEMS]", "{<<: [ITEMS]}", "{x: [ITEMS]}"])
def test_a_few_lines_cannot_stand_for_a_billion_values(item: str) -> None:
    lines = (f"a{n}: &a{n} " + item.replace("ITEMS", ",".join([f"*a{n - 1}"] * 9)) for n in range(1, 10))
    assert f"expected at most {MAX_VALUES} values" in refusal("\n".join(["a0: &a0 {x: 1}", *lines]))


# --- every kind of file ---

READERS: list[tuple[Callable[[str], object], type[SpecdecError]]] = [
    (lambda path: load_settings(path, {}), ConfigError),
    (load_web_config, ConfigError),
    (read_baseline, BaselineError),
]
kinds = pytest.mark.parametrize(("reader", "error"), READERS, ids=["config", "web", "baseline"])


@kinds
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"nonsense: 1", "line 1: nonsense: unknown key"),
        (b"nonsense: 2026-13-45", "line 1: nonsense: unknown key"),
        (b"a: 1\na: 2", "line 2: a: expected every key once"),
        (b"- 1", "line 1: top level: expected a mapping, found a list"),
        (b"a: \xff", "line 1: is not YAML"),
        (b"a: \x07", "line 1: is not YAML"),
        (b"a:\n- b\n c: [", "line 3: is not YAML"),
        (b"[" * 3000, "line 1: expected at most"),
        (b"a: &a [*a]", "line 1: expected at most"),
        (b"#" * (MAX_BYTES + 1), "expected at most"),
    ],
)
def test_every_kind_of_file_is_refused_alike(
    reader: Callable[[str], object], error: type[SpecdecError], content: bytes, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "file.yaml"
    path.write_bytes(content)
    with pytest.raises(error) as caught:
        reader(str(path))
    assert str(caught.value).startswith(str(path))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


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


@settings(max_examples=400, deadline=None)
@given(st.binary(max_size=300) | SOUP)
@example(b"!!int ''")
@example(b"!!timestamp x")
@example(b"? &a a\n: *a")
@example(b"=")
@example(b"<<: <<")
@example(b"!<> a")
def test_any_bytes_are_a_value_or_an_error_of_ours(content: bytes) -> None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        for reader, error in READERS:
            with contextlib.suppress(error):
                reader(file.name)


def plain(node: Node) -> object:
    """What a node is without a schema; ``...`` for a value that only a schema can tell."""
    if node.yaml is None or not node.given:
        return None
    if isinstance(node.yaml, yaml.MappingNode):
        return {name: plain(value) for name, value in node.entries().items()}
    if isinstance(node.yaml, yaml.SequenceNode):
        return [plain(value) for value in node.items()]
    return node.text() if node.yaml.tag == "tag:yaml.org,2002:str" else ...


def alike(ours: object, theirs: object) -> bool:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        named = {str(key): value for key, value in theirs.items()}
        return len(ours) == len(theirs) and all(alike(ours[key], named[key]) for key in ours if key in named)
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(alike, ours, theirs))
    return ours is ... or ours == theirs


@settings(max_examples=400, deadline=None)
@given(SOUP)
@example(b"a: &a {b: c}\nd: {<<: *a, e: f}")
def test_what_is_accepted_is_what_yaml_says(content: bytes) -> None:
    with contextlib.suppress(ConfigError):
        ours = plain(parse_yaml(content, "FILE", ConfigError))
        try:
            theirs = yaml.safe_load(content)
        except (yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError):  # a schema has to refuse it
            return
        assert alike(ours, theirs)


def test_only_a_file_costs_the_import_of_yaml() -> None:
    program = (
        "import sys; from specdec_exporter.config import load_settings; load_settings(None, {});"
        "import specdec_exporter.baseline.file, specdec_exporter.web.webconfig; sys.exit('yaml' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
