"""Text helpers for messages: plurals, shortened lists, kinds with their options, and names of files."""

import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any


def counted(number: int, noun: str) -> str:
    """``number`` and its noun: "1 class", "0 classes", "1 query", "1,200 queries". Regular plurals only."""
    return f"{number:,} {noun if number == 1 else _plural(noun)}"


def first_few(names: Sequence[str], most: int = 3) -> str:
    """The first ``most`` of ``names`` and how many follow: "a, b, c and 1,200 more"."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def are(number: int) -> str:
    """The verb for ``number`` things: "is" or "are"."""
    return "is" if number == 1 else "are"


def have(number: int) -> str:
    """The verb for ``number`` things: "has" or "have"."""
    return "has" if number == 1 else "have"


def decimal(value: float | None, digits: int = 2, sign: str = "") -> str:
    """A number with so many digits after the point: 0.5 gives "0.50"; a dash for None and NaN.

    sign: "+" writes the sign of positive numbers too.
    """
    return "–" if value is None or value != value else f"{value:{sign}.{digits}f}"


def per_cent(score: float | None, digits: int = 2) -> str:
    """A score in [0, 1] in per cent without the sign: 0.5 gives "50.00"; a dash for None and NaN."""
    return decimal(None if score is None else 100 * score, digits)


def with_options(kind: str, options: Mapping[str, Any]) -> str:
    """A kind of bridge and its options, such as "rotation (centred, rank 256)"; the kind alone without options.

    options: numbers by name. Of True only the name is written; False and None are left out.
    """
    given = {name: value for name, value in options.items() if value is not None and value is not False}
    said = ", ".join(name if value is True else f"{name} {value:g}" for name, value in given.items())
    return f"{kind} ({said})" if said else kind


def broken_letters(text: str) -> bool:
    """Whether ``text`` has control characters, such as a line break, or is not valid Unicode, as file names can be."""
    return any(unicodedata.category(letter) in ("Cc", "Cs") for letter in text)


def printable(name: object) -> str:
    """``name`` as text on one line that any terminal can print: control characters and broken Unicode are escaped."""
    text = str(name)
    if not broken_letters(text):
        return text
    return "".join(
        letter.encode("unicode_escape").decode("ascii") if broken_letters(letter) else letter for letter in text
    )


def _plural(noun: str) -> str:
    if noun.endswith("s"):
        return noun + "es"
    return noun[:-1] + "ies" if noun.endswith("y") else noun + "s"
