from specdec_exporter.predictor.log.events import Event

def take_lines(
    buffer: bytes | bytearray,
    position: int,
    limit: int,
    end: int,
    engines: dict[tuple[str | None, int | None], str],
    events: list[Event],
    wants_stats: bool,
    /,
) -> int: ...
def find_words(buffer: bytes | bytearray, words: tuple[bytes, ...], common: int, start: int, end: int, /) -> int: ...
def count_lines(buffer: bytes | bytearray, end: int, /) -> int: ...
