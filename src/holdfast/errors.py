"""The exceptions a user is meant to read."""

import re


class HoldfastError(Exception):
    """Something the user can put right: what is wrong, where, and what to do, in one line.

    The command line prints the message without a traceback and exits with 1; everything else that is raised is a
    defect of ours and keeps its traceback.
    """


class UnavailableError(HoldfastError):
    """A server that the call needs is away or failed; nothing was wrong with what was asked, and later it may work."""


def unknown_name(kind: str, name: str, known: object) -> HoldfastError:
    """An error for a name that is in no table; it lists the ones that are."""
    names = ", ".join(sorted((str(k) for k in known), key=_with_numbers_as_numbers))  # type: ignore[attr-defined]
    return HoldfastError(f"unknown {kind} {name!r}; known: {names}")


def _with_numbers_as_numbers(name: str) -> list[str | int]:
    """So that fig2 comes before fig10."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"([0-9]+)", name)]


def how_to_install(extra: str) -> str:
    """What to type for an extra that is missing. Holdfast is on no package index: it is installed from its clone."""
    return f"pip install '.[{extra}]' in Holdfast's clone"
