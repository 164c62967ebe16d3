"""Numbers for a terminal, where a dash means not known, and names that others chose."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def plain(text: str) -> str:
    """Replace what cannot be printed by ``?``, so that foreign text cannot control the reader's terminal.

    That is control characters, line separators, and what changes the direction of the text around it.
    """
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else "?" for character in text)


def percent(ratio: float | None) -> str:
    """0.8161 as ``81.6%``."""
    return "-" if ratio is None else f"{ratio * 100:.1f}%"


def percentage_points(difference: float | None) -> str:
    """A difference of two ratios, -0.081 as ``-8.1 pp``."""
    return "-" if difference is None else f"{difference * 100:+.1f} pp"


def count(value: float | None) -> str:
    """A whole number with thousands separators."""
    return "-" if value is None else f"{value:,.0f}"


def decimal(value: float | None) -> str:
    """Two decimals, as vLLM prints lengths."""
    return "-" if value is None else f"{value:.2f}"


def seconds(value: float | None) -> str:
    """A time to three digits: ``11.3 ms``, ``2.5 s``."""
    if value is None:
        return "-"
    if value < 0.9995:
        return f"{value * 1000:.3g} ms"
    return f"{value:.3g} s" if value < 999.5 else f"{value:,.0f} s"


def between(low: float | None, high: float | None) -> str:
    """A time of which only limits are known: ``25 ms to 50 ms``, ``< 1 ms`` or ``> 10 s``."""
    if low is None:
        return "-" if high is None else f"< {seconds(high)}"
    return f"> {seconds(low)}" if high is None else f"{seconds(low)} to {seconds(high)}"


def in_words(names: Iterable[str]) -> str:
    """``one, two and three``; there is at least one name."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """``: did you mean WORD?`` for the choice that ``word`` is nearly spelled like; nothing if there is none."""
    near = get_close_matches(word, list(choices), n=1)
    return f": did you mean {near[0]}?" if near else ""


def size(byte_count: int) -> str:
    """Bytes in the decimal units that ``ls -h --si`` uses."""
    value = float(byte_count)
    for unit in ("B", "kB", "MB"):
        if value < 1000:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} GB"
