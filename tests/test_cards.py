"""The scores on the methods' cards are those of the committed results."""

import json
import re
import statistics
from pathlib import Path

import pytest

from papers.stationary.cifar_runs import OURS, TASKS
from papers.stationary.studies.validation_tries import METHODS
from papers.stationary.table2 import CHOSEN, PAPER, WITHOUT, table2_run

ROOT = Path(__file__).parents[1]
CARDS = sorted((ROOT / "docs" / "methods").glob("*.md"))
SCORES = r"(\d\.\d\d) / (\d+\.\d\d|–)(?: / (\d+\.\d\d))? at (\d+)"


def paragraph(card: Path, title: str) -> str:
    found = re.search(rf"\*\*{title}\*\*(.*?)(?:\n\n|\Z)", card.read_text(encoding="utf-8"), re.DOTALL)
    return " ".join(found[1].split()) if found else ""


def mean(files: list[Path], name: str) -> float | None:
    scores = [json.loads(path.read_text(encoding="utf-8"))["protocols"]["template"][name] for path in files]
    return None if None in scores else statistics.fmean(scores)


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
    if card.stem in METHODS:
        check_table_two(paragraph(card, r"Results\."), card.stem, WITHOUT if card.stem == OURS else PAPER)
    chosen = paragraph(card, r"With tuned settings\.")
    assert bool(chosen) == (card.stem in METHODS and card.stem != OURS and bool(CHOSEN[card.stem][WITHOUT]))
    if chosen:
        check_table_two(chosen, card.stem, WITHOUT)
    check(paragraph(card, r"Across two replacements\."), "iam/replaced", card.stem)
    check(paragraph(card, r"Across three architectures\."), "iam/architectures", card.stem)


def test_the_distances_to_er_are_those_of_table_two():
    distances = {
        method: [round(abs(aa - er)) for aa, er in zip(accuracies(method), accuracies("er"), strict=True)]
        for method in ("fan", "lce")
    }
    least, most = ((pick(distances["fan"]), pick(distances["lce"])) for pick in (min, max))
    fan, lce = ((ROOT / f"docs/methods/{name}.md").read_text(encoding="utf-8") for name in ("fan", "lce"))
    assert f"here it is {least[0]} to {most[0]} above" in fan
    assert f"its AA is {least[1]} to {most[1]} points below ER's" in " ".join(lce.split())


def accuracies(method: str) -> list[float]:
    """AA in per cent with the paper's settings, at each number of tasks."""
    found = []
    for tasks in TASKS:
        paths = [ROOT / "results" / table2_run(method, PAPER, tasks, seed).path for seed in range(3)]
        found.append(float(printed([path for path in paths if path.exists()], "AA")))
    return found


def check_table_two(text: str, method: str, source: str) -> None:
    """Every score in a paragraph is that of the runs of Table 2, and every number of tasks has one."""
    found = re.findall(SCORES, text)
    assert [int(tasks) for *_, tasks in found] == list(TASKS)
    for *numbers, tasks in found:
        runs = [table2_run(method, source, int(tasks), seed) for seed in range(3)]
        files = [path for run in runs if (path := ROOT / "results" / run.path).exists()]
        assert [printed(files, name) for name in ("AC", "AA", "ACA")] == numbers, (method, tasks)
    (only,) = re.findall(r"\(one seed at (.*), three elsewhere", text)
    several = [tasks for tasks in TASKS if (ROOT / "results" / table2_run(method, source, tasks, 1).path).exists()]
    assert {int(tasks) for tasks in only.split(" and ")} == set(TASKS) - set(several)
