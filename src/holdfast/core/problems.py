"""Files and folders that cannot be used: all of them in one error or one warning, and in a CSV file."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.core.errors import HoldfastError
from holdfast.core.storage import write_text
from holdfast.core.wording import counted, printable

SHOWN = 10
"""Problems that a message names; the file has all of them."""

SKIP_ADVICE = "; fix that, or pass --skip-unreadable (skip_unreadable=True in Python) to go on without it"


@dataclass(frozen=True)
class Problem:
    """A file or folder that cannot be used.

    path: the file or folder.
    reason: what is wrong with it, without its name.
    origin: where it was named, such as a table and its line; "" if it was found in a folder.
    """

    path: Path
    reason: str
    origin: str = ""

    def below(self, top: Path | None) -> str:
        """The problem as one line, with the path below ``top`` if it is below it; None: with the whole path."""
        inside = top is not None and self.path != top and self.path.is_relative_to(top)
        shown = self.path.relative_to(top) if top is not None and inside else self.path
        origin = f"{printable(self.origin)}: " if self.origin else ""
        return f"{origin}{printable(shown)}: {printable(self.reason)}"


def problem_file(out: Path) -> Path:
    """The file that lists the problems of a command with the output ``out``: beside it, OUT.unreadable.csv."""
    return out.absolute().parent / f"{out.absolute().name}.unreadable.csv"


def write_problems(file: Path, problems: Sequence[Problem]) -> Path | None:
    """Write all problems as a CSV file (see ``problems_text``). Without problems an earlier file is removed.

    Returns the file; None without problems, or if the place cannot be written.
    """
    try:
        if problems:
            write_text(file, problems_text(problems))
            return file
        file.unlink(missing_ok=True)
    except OSError:
        pass  # the problems themselves are reported in any case
    return None


def problems_text(problems: Sequence[Problem]) -> str:
    """All problems as CSV with the columns path and reason.

    Control characters and broken Unicode in paths are escaped, so that each problem is one line.
    """
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(("path", "reason"))
    for one in problems:
        origin = f" ({one.origin})" if one.origin else ""
        table.writerow((printable(one.path), printable(f"{one.reason}{origin}")))
    return text.getvalue()


def name_problems(problems: Sequence[Problem], top: Path) -> str:
    """The first ten problems in one line, and how many follow."""
    more = f"; and {len(problems) - SHOWN:,} more" if len(problems) > SHOWN else ""
    return "; ".join(one.below(top) for one in problems[:SHOWN]) + more


def problems_error(
    source: Path | str,
    problems: Sequence[Problem],
    files: int,
    *,
    listed: Path | str | None = None,
    advice: str = "",
    noun: str = "file",
) -> HoldfastError:
    """One error for all problems.

    source: the folder or table that was read: a path, or an address as text.
    problems: at least one.
    files: how many files were looked at.
    listed: the file that has all of the problems; None if there is none.
    advice: what the user can do, added as it is.
    noun: what was looked at, if not files.
    """
    where = "" if listed is None else f" (list: {listed})"
    if len(problems) == 1:
        return HoldfastError(f"{problems[0].below(None)}{where}{advice}")
    count = f"{counted(len(problems), 'problem')} among {counted(files, noun)}"
    return HoldfastError(f"{printable(source)}: {count}{where}: {name_problems(problems, Path(source))}{advice}")
