"""A gallery's versions in words that fit a narrow screen."""

from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.wording import counted

if TYPE_CHECKING:
    from holdfast.gallery import Version


def seen_from_here(path: str) -> str:
    """Relative where it lies below this folder, because the screen is narrow."""
    here = Path.cwd()
    return str(Path(path).relative_to(here)) if Path(path).is_relative_to(here) else path


def verdicts(version: "Version") -> str:
    """What the check said of a version's queries, the older versions with one verdict together."""
    older: dict[str, list[int]] = {}
    for check in version.checks:
        older.setdefault(check["verdict"], []).append(int(check["version"]))
    return "; ".join(f"on {ranges(numbers)}: {verdict}" for verdict, numbers in older.items())


def ranges(numbers: list[int]) -> str:
    """Three or more in a row by the first and the last: "1, 3 to 6"."""
    rows: list[list[int]] = []
    for number in sorted(numbers):
        if rows and rows[-1][-1] == number - 1:
            rows[-1].append(number)
        else:
            rows.append([number])
    return ", ".join(f"{row[0]} to {row[-1]}" if len(row) > 2 else ", ".join(map(str, row)) for row in rows)


def sizes(version: "Version") -> str:
    return f"features of {counted(version.dim, 'number')}, stored as {version.stored_dim}"
