"""Who is told how far decoding is: a set of many pictures takes minutes, in which nothing else would be seen."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Told = Callable[[str, int, int], None]
"""Called with the name of a set, how many of its images are decoded, and of how many; the first time with 0."""

# Not an option of the readers: their keyword options are what a recipe may say of a set.
_TOLD: ContextVar[Told | None] = ContextVar("told", default=None)


@contextmanager
def telling(told: Told | None) -> Iterator[None]:
    """Tell ``told`` of what this thread decodes within the block."""
    before = _TOLD.set(told)
    try:
        yield
    finally:
        _TOLD.reset(before)


def tell(name: str, done: int, total: int) -> None:
    told = _TOLD.get()
    if told is not None:
        told(name, done, total)
