"""Properties of reading one log line, for any bytes and any counts."""

from __future__ import annotations

import re
from string import ascii_lowercase

from hypothesis import given
from hypothesis import strategies as st

from specdec_exporter.predictor.log.events import (
    Malformed,
    ServerArguments,
)
from support.loglines import (
    ARGUMENTS,
    CONFIG,
    EXTRA_FIELDS,
    HEADER,
    PARAMS,
    SPEC,
    SPEC_0_8_3,
    SPEC_0_9,
    SPEC_V0,
    STATS,
    drafts,
    parse,
    parse_line,
    rendered,
    spec,
)

# Names of one word that known fields have: a second field of that name is an error.
KNOWN_NAMES = {
    "Accepted", "Drafted", "Running", "Waiting", "Swapped", "Pending", "Deferred", "Preemptions", "Corrupted"
}  # fmt: skip


@given(st.binary(max_size=400))
def test_any_bytes_are_read_without_harm(line: bytes) -> None:
    parse_line(line)


@given(
    st.sampled_from(
        [SPEC, SPEC_0_9, SPEC_0_8_3, SPEC_V0, STATS, CONFIG, ARGUMENTS, f"Received request x: params: {PARAMS}"]
    ),
    st.sampled_from([HEADER, "", "{", '{"message": "']),
    st.integers(0, 400),
    st.binary(max_size=40),
)
def test_damaged_lines_are_read_without_harm(message: str, header: str, place: int, noise: bytes) -> None:
    line = (header + message).encode()
    parse_line(line[:place] + noise + line[place + len(noise) :])


@given(drafts(), st.sampled_from(["v0", "0.8.3", "0.8.5", "0.9.0", "0.10.2"]))
def test_what_a_release_writes_is_read_back(counts: tuple[int, list[int], int], wording: str) -> None:
    count, positions, drafted = counts
    event = spec(HEADER + rendered(wording, count, positions, drafted))
    assert (event.accepted_tokens, event.draft_tokens) == (sum(positions), drafted)
    assert event.acceptance_ratio == (sum(positions) / drafted if drafted else None)
    if wording in ("0.8.5", "0.9.0", "0.10.2"):
        assert event.num_speculative_tokens == len(positions)
        assert event.bonus_included is (wording != "0.8.5")


_WORDS = st.text("abcXYZ019.=@%/()+- ", min_size=1, max_size=12).filter(str.strip)
_VALUES = st.one_of(
    st.lists(_WORDS, min_size=1, max_size=3).map("".join),
    st.integers(0, 10**12).map("{:,}".format),
    st.builds("{} waiting, {} running".format, st.integers(0, 999), st.integers(0, 999)),
)


_NAMES = (
    st.text(ascii_lowercase, min_size=2, max_size=9).map(str.capitalize).filter(lambda name: name not in KNOWN_NAMES)
)


@given(
    st.sampled_from([SPEC, SPEC_0_9, SPEC_0_8_3, SPEC_V0, STATS]),
    st.integers(0, 9),
    st.sampled_from(EXTRA_FIELDS) | st.builds("{}: {}".format, _NAMES, _VALUES),
)
def test_no_field_that_a_later_release_adds_changes_what_is_read(message: str, place: int, extra: str) -> None:
    fields = re.split(r", (?=[A-Z])", message)
    places = len(fields) - (message is SPEC_V0)  # its full stop stands last
    fields.insert(1 + place % places, extra)
    assert parse(HEADER + ", ".join(fields)) == parse(HEADER + message)


_WRITTEN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=8), inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
    ),
    max_leaves=6,
)
_ARGUMENT_NAMES = st.sampled_from(["model", "port", "seed", "compilation_config", "override_generation_config", "x"])
_NAMED = st.text("ab/-._'\\\"{}[](), =:", min_size=1, max_size=12)


_OTHERS = st.dictionaries(_ARGUMENT_NAMES, _WRITTEN, max_size=3)


@given(
    others=st.tuples(_OTHERS, _OTHERS, _OTHERS),
    names=st.tuples(_NAMED, st.none() | _NAMED),
    tokens=st.integers(0, 999_999_999),
    cut=st.integers(0, 2000),
)
def test_arguments_are_read_back_as_they_were_written_or_not_at_all(
    others: tuple[dict[str, object], ...], names: tuple[str, str | None], tokens: int, cut: int
) -> None:
    before, beside, after = ({f"{name}_": value for name, value in each.items()} for each in others)
    ours = {"method": names[0], "model": names[1], "num_speculative_tokens": tokens}
    arguments = {**before, "speculative_config": {**beside, **ours}, **after}
    event = parse(f"{HEADER}non-default args: {arguments}")
    assert isinstance(event, ServerArguments)
    keys = event.arguments["speculative_config"]
    assert (keys["method"], keys["model"], keys["num_speculative_tokens"]) == (*names, tokens)
    beginning = f"{HEADER}non-default args: {{"
    said = parse(f"{HEADER}non-default args: {arguments}"[: len(beginning) + cut])
    if isinstance(said, ServerArguments):
        assert said == event
    else:
        assert isinstance(said, Malformed)
