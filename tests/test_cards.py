"""The scores on the methods' cards and in docs/methods/README.md are those of the committed results."""

import json
import re
import statistics
import tomllib
from pathlib import Path

import pytest

from holdfast.reports import METHOD_NAMES
from papers.stationary.cifar_runs import OURS

ROOT = Path(__file__).parents[1]
CARDS = sorted((ROOT / "docs" / "methods").glob("*.md"))
SCORES = r"(\d\.\d\d) / (\d+\.\d\d|–)(?: / (\d+\.\d\d))? at (\d+)"


def paragraph(card: Path, title: str) -> str:
    found = re.search(rf"\*\*{title}\*\*(.*?)(?:\n\n|\Z)", card.read_text(encoding="utf-8"), re.DOTALL)
    return " ".join(found[1].split()) if found else ""


def mean(files: list[Path], name: str) -> float | None:
    scores = [json.loads(path.read_text(encoding="utf-8"))["protocols"]["template"][name] for path in files]
    return None if None in scores else statistics.fmean(scores)


def over_seeds(pattern: str, name: str, protocol: str) -> float:
    """The mean of a score over the files of a pattern below results."""
    files = sorted((ROOT / "results").glob(pattern))
    return statistics.fmean(json.loads(path.read_text())["protocols"][protocol][name] for path in files)


def printed(files: list[Path], name: str) -> str:
    found = mean(files, name)
    return "–" if found is None else f"{found * (1 if name == 'AC' else 100):.2f}"


def check(text: str, folder: str, method: str) -> None:
    """Every score in a paragraph is that of the runs in a folder, and every number of tasks run there has one."""
    found = re.findall(SCORES, text)
    for *numbers, tasks in found:
        files = sorted((ROOT / "results" / folder).glob(f"{method}-t{tasks}-natural-s*.json"))
        assert files, (method, tasks)
        for name, number in zip(("AC", "AA", "ACA"), numbers):
            assert not number or printed(files, name) == number, (method, tasks, name)
    run = {path.name.split("-")[1] for path in (ROOT / "results" / folder).glob(f"{method}-t*-natural-s*.json")}
    assert len(found) == len(run), (folder, method)


@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.stem)
def test_a_card(card):
    own = paragraph(card, r"Results\.")
    check(own, "cifar100-10/tuned" if card.stem == OURS else "cifar100-10/paper", card.stem)
    if card.stem != OURS:
        check(paragraph(card, r"With tuned settings\."), "cifar100-10/tuned", card.stem)
    check(paragraph(card, r"Across two replacements\."), "iam/replaced", card.stem)
    check(paragraph(card, r"Across three architectures\."), "iam/architectures", card.stem)


def test_the_table_of_results():
    names = {name: method for method, name in METHOD_NAMES.items()}
    page = (ROOT / "docs/methods/README.md").read_text(encoding="utf-8")
    lines = re.findall(r"^\| ([^|]+) \| (.* / .*) \|$", page, re.MULTILINE)
    paper = tomllib.loads((ROOT / "papers/stationary/paper/table2.toml").read_text(encoding="utf-8"))
    compared = 0
    for name, cells in lines:
        for tasks, cell in zip((2, 7, 16, 31), cells.split(" | ")):
            files = sorted((ROOT / "results/cifar100-10/paper").glob(f"{names[name]}-t{tasks}-natural-s*.json"))
            ac, aa, aca = (mean(files, score) for score in ("AC", "AA", "ACA"))
            star = {1: "", 3: "*"}[len(files)]
            shown = f"{ac:.2f} / {100 * aa:.1f} / {100 * aca:.1f}{star} ("
            assert cell.startswith(shown), (name, tasks, shown)
            in_brackets = [float(number) for number in cell[cell.index("(") + 1 : -1].split(" / ")]
            assert in_brackets == [
                round(number, places) for number, places in zip(paper[names[name]][str(tasks)], (2, 1, 1))
            ]
            compared += 1
    assert compared == 32


@pytest.mark.parametrize("recipe", sorted((ROOT / "recipes/cifar100-10").glob("*.toml")), ids=lambda path: path.stem)
def test_the_header_of_a_recipe(recipe):
    (said,) = re.findall(r"^# Measured: (.*)$", recipe.read_text(encoding="utf-8"), re.MULTILINE)
    check(said, "cifar100-10/paper", recipe.stem)


def test_what_is_said_of_our_own_method():
    text = (ROOT / "docs/methods/README.md").read_text(encoding="utf-8")
    said = " ".join(text[text.index("Ours (`simplex_hoc_views`)") :].split("\n\n")[0].split())
    found = re.findall(r"(\d\.\d\d) / (\d+\.\d) / (\d+\.\d) at (\d+)", said)
    for *numbers, tasks in found:
        files = sorted((ROOT / "results/cifar100-10/tuned").glob(f"{OURS}-t{tasks}-natural-s*.json"))
        scores = [float(printed(files, name)) for name in ("AC", "AA", "ACA")]
        assert numbers == [f"{scores[0]:.2f}", f"{scores[1]:.1f}", f"{scores[2]:.1f}"], tasks
    assert [int(tasks) for *_, tasks in found] == [2, 7, 16, 31]
    fan = sorted((ROOT / "results/cifar100-10/tuned").glob("fan-t7-natural-s*.json"))
    ac, aa, aca = (float(printed(fan, name)) for name in ("AC", "AA", "ACA"))
    assert f"({ac:.2f} / {aa:.1f} / {aca:.1f} at 7" in text


def test_what_is_said_of_it_by_instance_and_in_another_order():
    text = " ".join((ROOT / "docs/methods/README.md").read_text(encoding="utf-8").split())

    def found(run: str, name: str, order: str, counts: tuple[int, ...], protocol: str) -> list[float]:
        return [over_seeds(f"cifar100-10/{run}-t{tasks}-{order}-s*.json", name, protocol) for tasks in counts]

    ours, theirs = "tuned/simplex_hoc_views", "paper/simplex_hoc"
    ac = [found(run, "AC", "natural", (7, 16, 31), "instance") for run in (ours, theirs)]
    assert "is {:.2f}, {:.2f} and {:.2f}, d-Simplex-HOC's {:.2f}, {:.2f} and {:.2f}".format(*ac[0], *ac[1]) in text
    aa = [found(run, "AA", "natural", (7, 16, 31), "instance") for run in (ours, theirs)]
    less = [100 * (own - other) for own, other in zip(*aa)]
    assert "at {:.1f}, {:.1f} and {:.1f} points less AA".format(*less) in text
    shuffled = [found(run, "AC", "icarl", (7, 16), "template") for run in (ours, theirs)]
    assert "(AC {:.2f} and {:.2f} against {:.2f} and {:.2f})".format(*shuffled[0], *shuffled[1]) in text
