"""The small text files beside datasets: one row per line, fields between blanks."""

from collections.abc import Iterator
from pathlib import Path

from holdfast.errors import HoldfastError


def rows(file: Path, fields: int) -> Iterator[list[str]]:
    """The first ``fields`` fields of each line; empty lines are passed over, shorter ones refused."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise HoldfastError(f"{file}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise HoldfastError(f"{file}: not readable as text ({error})") from error
    for number, line in enumerate(lines, start=1):
        found = line.split()
        if found and len(found) < fields:
            raise HoldfastError(f"{file}, line {number}: {fields} fields expected, found {len(found)}")
        if found:
            yield found[:fields]


def number_pairs(file: Path) -> Iterator[tuple[int, int]]:
    """The first two fields of each line, both whole numbers."""
    for first, second in rows(file, 2):
        try:
            yield int(first), int(second)
        except ValueError:
            raise HoldfastError(f"{file}: two whole numbers expected, found {first} {second}") from None
