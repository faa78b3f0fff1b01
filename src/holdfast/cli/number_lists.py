"""Options that take several numbers."""

from collections.abc import Callable
from typing import TypeVar

from holdfast.errors import HoldfastError

Number = TypeVar("Number", int, float)


def whole_numbers(option: str, words: str) -> list[int]:
    """Whole numbers separated by commas, at least one; anything else is refused by the option's name."""
    return at_least_one(option, words, int, "whole numbers")


def whole_numbers_if_any(option: str, words: str) -> list[int]:
    """The same, and none where nothing is given."""
    return _listed(option, words, int, "whole numbers")


def at_least_one(option: str, words: str, kind: Callable[[str], Number], called: str) -> list[Number]:
    numbers = _listed(option, words, kind, called)
    if not numbers:
        raise HoldfastError(f"{option} must name {called}, got {words!r}")
    return numbers


def _listed(option: str, words: str, kind: Callable[[str], Number], called: str) -> list[Number]:
    try:
        return [kind(word) for word in words.split(",") if word.strip()]
    except ValueError:
        raise HoldfastError(f"{option} must be {called} separated by commas, got {words!r}") from None
