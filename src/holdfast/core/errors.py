"""The exceptions that are shown to users."""

import re

from holdfast.core.wording import printable

LONGEST_LINE = 2000
"""Characters of a line of an error. What it quotes, such as a value in a file, can have any length."""


class HoldfastError(Exception):
    """An error that the user can correct: what is wrong, where, and what to do, in one line.

    The command line prints the message without a traceback and exits with status 1. Any other exception is a defect
    of Holdfast and keeps its traceback. Control characters are escaped, and of a very long line the middle is left out.

    >>> from holdfast import Gallery, HoldfastError
    >>> try:
    ...     Gallery.open("nothing-here")
    ... except HoldfastError as error:
    ...     print(error)
    nothing-here: no gallery here; make one with holdfast gallery create nothing-here --model DIR
    """

    def __init__(self, message: object = "") -> None:
        super().__init__("\n".join(_shortened(printable(line)) for line in str(message).split("\n")))


def _shortened(line: str) -> str:
    return line if len(line) <= LONGEST_LINE else f"{line[: LONGEST_LINE - 505]} ... {line[-500:]}"


class DivergedError(HoldfastError):
    """A loss, a weight or a learned map became NaN or infinite during training. The same run would fail again."""


class UnavailableError(HoldfastError):
    """A server that the call needs is unreachable or failed. The request itself is valid and may be retried."""


LONGEST_REASON = 300
"""Characters of what ``first_line`` returns. What another library says can have any length."""


def first_line(error: BaseException) -> str:
    """The first line of what an error says; the name of its type if it says nothing."""
    lines = str(error).strip().splitlines()
    return lines[0][:LONGEST_REASON] if lines else type(error).__name__


def unknown_name(kind: str, name: str, known: object) -> HoldfastError:
    """An error for an unknown name that lists the known ones."""
    names = ", ".join(sorted((str(k) for k in known), key=_natural_order))  # type: ignore[attr-defined]
    return HoldfastError(f"unknown {kind} {name!r}; known: {names}")


def _natural_order(name: str) -> list[str | int]:
    """Sort key that puts fig2 before fig10."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"([0-9]+)", name)]


def how_to_install(extra: str) -> str:
    """The command that installs a missing extra. Holdfast is installed from a clone of its repository."""
    return f"pip install '.[{extra}]' in Holdfast's clone"


OF_THE_EXTRA_TRAIN = ("torch", "PIL", "pydantic", "tomli_w", "matplotlib")


def missing_extra(error: ModuleNotFoundError) -> str | None:
    """What to install if a module of the extra ``train`` is missing; None for any other module."""
    top = (error.name or "").partition(".")[0]
    return f"needs {top}, which is not installed; {how_to_install('train')}" if top in OF_THE_EXTRA_TRAIN else None
