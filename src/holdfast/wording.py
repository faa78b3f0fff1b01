"""Numbers with their nouns and lists of names, as people write them."""

from collections.abc import Sequence


def counted(number: int, noun: str) -> str:
    """``number`` and its noun: "1 class", "0 classes", "1 query", "1,200 queries". Regular plurals only."""
    return f"{number:,} {noun if number == 1 else _plural(noun)}"


def first_few(names: Sequence[str], most: int = 3) -> str:
    """The first ``most`` of ``names`` and how many follow: "a, b, c and 1,200 more"."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def are(number: int) -> str:
    """The verb that goes with ``number`` things."""
    return "is" if number == 1 else "are"


def have(number: int) -> str:
    """Likewise."""
    return "has" if number == 1 else "have"


def _plural(noun: str) -> str:
    if noun.endswith("s"):
        return noun + "es"
    return noun[:-1] + "ies" if noun.endswith("y") else noun + "s"
