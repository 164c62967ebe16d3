"""Words are found where they stand, however common their bytes are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from specdec_exporter.predictor.log.search import Words, find_words

WORDS = [Words((b"Decoding", b"Drafted: ")), Words((b"WARNING",)), Words((b"peculative",), place=3)]
TEXTS = [text for words in WORDS for text in words.texts]
PIECES = TEXTS + [text[:cut] * 40 for text in TEXTS for cut in (1, 4, -1)] + [b"", b"x\n"]


@given(st.lists(st.sampled_from(PIECES), max_size=12).map(b"".join), st.data())
def test_every_place_is_found_in_order(data: bytes, choices: st.DataObject) -> None:
    end = choices.draw(st.integers(0, len(data)))
    assert find_words(WORDS, bytearray(data), end) == [
        place for place in range(end) if data[:end].startswith(tuple(TEXTS), place)
    ]
