"""Numbers with their nouns, as people write them."""


def counted(number: int, one: str, many: str | None = None) -> str:
    """``number`` and its noun: "1 class", "0 classes", "1,200 runs"; ``many`` where an s is not enough."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
