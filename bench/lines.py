"""Lines by package and options of the command line, now and at an older commit.

    python bench/lines.py [--against COMMIT] [--json FILE]

Counted are the lines of Python files, blank ones included, in four packages: the index side (``src/holdfast`` but
``train/``, with the command line), ``train/``, ``papers/`` and ``tests/`` (those of ``papers/`` included). Options are
those of every verb, counted from the typer app; ``--help`` and those of the program itself are not counted.

With ``--against`` the lines of the older commit are told apart. A line *stayed* if it is part of three consecutive
lines, indentation aside, that are still in the same package. It *moved* if they are only in other packages. Otherwise
it *went*. New lines are those of today that no package had.
"""

import argparse
import io
import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("index side", "train", "papers", "tests")
WINDOW = 3
"""Consecutive lines that must be equal: a line such as ``return None`` is everywhere."""

Window = tuple[str, ...]

COUNT_OPTIONS = """
import json
from typer.main import get_command
from holdfast.cli import app

def count(command):
    below = [count(verb) for verb in getattr(command, "commands", {}).values()]
    if below:
        return sum(options for options, _ in below), sum(verbs for _, verbs in below)
    return sum(one.param_type_name == "option" and one.name != "help" for one in command.params), 1

print(json.dumps(count(get_command(app))))
"""


@dataclass(frozen=True)
class Tree:
    """files: lines of each Python file, by package. options, verbs: of the command line; None if it does not start."""

    files: Mapping[str, list[list[str]]]
    options: int | None
    verbs: int | None

    def lines(self, package: str) -> int:
        return sum(len(file) for file in self.files[package])


@dataclass
class Row:
    """Lines of one package. before, stayed, moved, went, new: None without an older commit."""

    now: int
    before: int | None = None
    stayed: int | None = None
    moved: dict[str, int] = field(default_factory=dict)
    went: int | None = None
    new: int | None = None


def package_of(path: Path) -> str | None:
    """The package of a file, by its path below the root of the repository; None if it is not counted."""
    if path.suffix != ".py":
        return None
    if path.parts[:2] == ("src", "holdfast"):
        return "train" if path.parts[2] == "train" else "index side"
    return path.parts[0] if path.parts[0] in ("papers", "tests") else None


def read_tree(root: Path) -> Tree:
    """The tree in a folder. Caches and environments beside the packages are not looked at."""
    files: dict[str, list[list[str]]] = {package: [] for package in PACKAGES}
    for top in ("src", "papers", "tests"):
        for path in sorted((root / top).rglob("*.py")):
            if package := package_of(path.relative_to(root)):
                files[package].append(path.read_text(encoding="utf-8").splitlines())
    return Tree(files, *count_options(root))


def count_options(root: Path) -> tuple[int | None, int | None]:
    """Options and verbs of the command line in a folder."""
    command = [sys.executable, "-c", COUNT_OPTIONS]
    environment = {"PYTHONPATH": str(root / "src"), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=root, env=environment)
    if done.returncode:
        return None, None
    options, verbs = json.loads(done.stdout)
    return options, verbs


def read_commit(commit: str, root: Path = ROOT) -> Tree:
    """The tree of a commit."""
    archive = subprocess.run(["git", "archive", commit], cwd=root, capture_output=True, check=True).stdout
    with tempfile.TemporaryDirectory() as folder, tarfile.open(fileobj=io.BytesIO(archive)) as packed:
        packed.extractall(folder, filter="data")
        return read_tree(Path(folder))


def windows(lines: list[str]) -> Iterator[tuple[Window, list[int]]]:
    """Consecutive lines without indentation and blank lines, with their numbers; a short file is one window."""
    numbered = [(number, text) for number, line in enumerate(lines) if (text := line.strip())]
    for first in range(max(1, len(numbered) - WINDOW + 1)):
        part = numbered[first : first + WINDOW]
        yield tuple(text for _, text in part), [number for number, _ in part]


def all_windows(tree: Tree) -> dict[str, set[Window]]:
    return {package: {text for file in tree.files[package] for text, _ in windows(file)} for package in PACKAGES}


def where_lines_are(file: list[str], package: str, other: Mapping[str, set[Window]]) -> list[str | None]:
    """For each line of a file the package that has it in another tree: its own, else another, else None.

    A blank line is where the line before it is.
    """
    places: list[str | None] = [None] * len(file)
    order = (package, *(name for name in PACKAGES if name != package))
    for text, numbers in windows(file):
        place = next((name for name in order if text in other[name]), None)
        for number in numbers:
            if place is not None and (places[number] is None or place == package):
                places[number] = place
    for number in range(1, len(file)):
        if not file[number].strip():
            places[number] = places[number - 1]
    return places


def compare(now: Tree, before: Tree | None) -> dict[str, Row]:
    """One row for each package."""
    rows = {package: Row(now.lines(package)) for package in PACKAGES}
    if before is None:
        return rows
    today, earlier = all_windows(now), all_windows(before)
    for package, row in rows.items():
        places = [place for file in before.files[package] for place in where_lines_are(file, package, today)]
        row.before, row.stayed, row.went = len(places), places.count(package), places.count(None)
        row.moved = {name: count for name in PACKAGES if name != package and (count := places.count(name))}
        origins = [place for file in now.files[package] for place in where_lines_are(file, package, earlier)]
        row.new = origins.count(None)
    return rows


def table(rows: Mapping[str, Row], now: Tree, before: Tree | None) -> str:
    """The rows as text."""
    lines = [f"{'':12}{'before':>9}{'now':>9}{'stayed':>9}{'went':>9}{'new':>9}  moved to"]
    for package, row in rows.items():
        cells = [row.before, row.now, row.stayed, row.went, row.new]
        moved = ", ".join(f"{name} {count:,}" for name, count in row.moved.items())
        lines.append(f"{package:12}{''.join(f'{_shown(cell):>9}' for cell in cells)}  {moved}".rstrip())
    for name, counts in (("CLI options", "options"), ("CLI verbs", "verbs")):
        earlier = None if before is None else getattr(before, counts)
        lines.append(f"{name:12}{_shown(earlier):>9}{_shown(getattr(now, counts)):>9}")
    return "\n".join(lines)


def _shown(count: int | None) -> str:
    return "-" if count is None else f"{count:,}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Lines by package and options of the command line.")
    parser.add_argument("--against", metavar="COMMIT", help="an older commit to compare with")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    options = parser.parse_args()
    now, before = read_tree(ROOT), read_commit(options.against) if options.against else None
    rows = compare(now, before)
    print(table(rows, now, before))
    if options.json:
        figures = {
            "against": options.against,
            "packages": {package: asdict(row) for package, row in rows.items()},
            "options": {"now": now.options, "before": before and before.options},
            "verbs": {"now": now.verbs, "before": before and before.verbs},
        }
        options.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
