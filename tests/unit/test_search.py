"""Words are found where they stand, however common their bytes are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from specdec_exporter.predictor.log.search import Search, Word

WORDS = [Word(b"WARNING"), Word(b"Running: "), Word(b"Drafted: "), Word(b"Decoding"), Word(b"peculative", rare=3)]
PIECES = [word.text for word in WORDS] + [word.text[:cut] * 40 for word in WORDS for cut in (1, 4, -1)] + [b"", b"x\n"]


@given(
    st.lists(st.sampled_from(PIECES), max_size=12).map(b"".join), st.lists(st.integers(0, 300), max_size=8), st.data()
)
def test_the_next_word_is_found_from_wherever_one_looks(data: bytes, steps: list[int], choices: st.DataObject) -> None:
    end = choices.draw(st.integers(0, len(data)))
    words = choices.draw(st.permutations(WORDS))
    search = Search(words, bytearray(data), end)
    start = 0
    for step in [0, *steps]:
        start = min(start + step, end)
        places = {data.find(word.text, start, end): word for word in words}
        places.pop(-1, None)
        place = min(places, default=end)
        assert search.find(start) == (place, places.get(place))
