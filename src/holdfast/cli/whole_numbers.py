"""Options that take several whole numbers."""


def whole_numbers(option: str, words: str) -> list[int]:
    """Whole numbers separated by commas; anything else is refused by the option's name."""
    from holdfast.errors import HoldfastError

    try:
        numbers = [int(word) for word in words.split(",") if word.strip()]
    except ValueError:
        raise HoldfastError(f"{option} must be whole numbers separated by commas, got {words!r}") from None
    if not numbers:
        raise HoldfastError(f"{option} names no number, got {words!r}")
    return numbers
