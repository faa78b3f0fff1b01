"""The count of lines and options: what moved, what went, what is new."""

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

import lines

KEPT = "def kept():\n    first = 1\n    return first\n"
MOVED = "def moved():\n    second = 2\n\n    return second\n"
DELETED = "def deleted():\n    third = 3\n    return third\n"
ADDED = "def added():\n    fourth = 4\n    return fourth\n"


@pytest.fixture
def repository(tmp_path):
    """Two commits: a function moves from ``train`` to ``papers``, one is deleted, one is added to the index side."""

    def write(path, text):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)

    def commit(message):
        for words in (["add", "-A"], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", message]):
            subprocess.run(["git", *words], cwd=tmp_path, check=True)

    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    write("src/holdfast/train/model.py", f"{KEPT}\n\n{MOVED}\n\n{DELETED}")
    write("src/holdfast/core/page.html", "<p>not counted</p>\n")
    write("tests/test_model.py", KEPT)
    commit("before")
    write("src/holdfast/train/model.py", KEPT)
    write("papers/study.py", MOVED.replace("    ", "        "))  # indented anew
    write("src/holdfast/core/added.py", ADDED)
    return tmp_path


def test_lines_that_moved_are_told_from_lines_that_went(repository):
    rows = lines.compare(lines.read_tree(repository), lines.read_commit("HEAD", repository))
    train = rows["train"]
    assert (train.before, train.now, train.stayed, train.moved, train.went, train.new) == (
        14,
        3,
        5,
        {"papers": 6},
        3,
        0,
    )
    assert (rows["papers"].before, rows["papers"].now, rows["papers"].new) == (0, 4, 0)
    assert (rows["index side"].now, rows["index side"].new) == (3, 3)
    assert (rows["tests"].stayed, rows["tests"].went) == (3, 0)  # the same lines in train do not make them move


def test_every_file_belongs_to_one_package():
    places = {
        "src/holdfast/cli/run.py": "index side",
        "src/holdfast/train/engine/fit.py": "train",
        "papers/sweeps/sweep.py": "papers",
        "tests/papers/test_sweeps_sweep.py": "tests",
        "bench/lines.py": None,
        "src/holdfast/service/page/page.js": None,
    }
    assert {path: lines.package_of(Path(path)) for path in places} == places


def test_options_are_those_of_the_typer_app(tmp_path):
    """Also those of a verb within a verb; arguments, ``--help`` and the program's own options are not counted."""
    cli = tmp_path / "src" / "holdfast" / "cli.py"
    cli.parent.mkdir(parents=True)
    (cli.parent / "__init__.py").touch()
    cli.write_text(
        "import typer\n"
        "app, inner = typer.Typer(), typer.Typer()\n"
        "@app.callback()\n"
        "def main(version: bool = False): pass\n"
        "@app.command()\n"
        "def run(name: str, fast: bool = False, size: int = 1): pass\n"
        "@inner.command()\n"
        "def add(key: str = ''): pass\n"
        "@inner.command()\n"
        "def stats(): pass\n"
        "app.add_typer(inner, name='gallery')\n"
    )
    assert lines.count_options(tmp_path) == (2 + 1, 3)
    cli.write_text("raise SystemExit(1)\n")
    assert lines.count_options(tmp_path) == (None, None)


def test_the_table_shows_both_trees(repository, capsys):
    now, before = lines.read_tree(repository), lines.read_commit("HEAD", repository)
    shown = lines.table(lines.compare(now, before), now, before).splitlines()
    assert shown[2].split() == ["train", "14", "3", "5", "3", "0", "papers", "6"]
    alone = lines.table(lines.compare(now, None), now, None).splitlines()
    assert alone[2].split() == ["train", "-", "3", "-", "-", "-"]
