"""The page of the quarterly study is that of the committed results, and its numbers follow from them."""

import json
import re
import statistics
from pathlib import Path

import pytest
from PIL import Image

from papers.quarters.execute import SEEDS, Results, study_runs
from papers.quarters.goals import signed
from papers.quarters.page import PICTURES, TITLES, page
from papers.quarters.picture import kept_lines
from papers.quarters.replacement import replacement_runs
from papers.quarters.shares import Records, spread
from papers.quarters.study_data import (
    KNOWN,
    NETWORK,
    NETWORK_REPLACEMENT,
    PHOTOGRAPHS,
    REPLACEMENT,
    TEXTS,
    UNSEEN,
)
from papers.stationary.plots import fingerprint

ROOT = Path(__file__).parents[2]
RESULTS, PAGE = ROOT / "results", ROOT / "docs" / "results" / "quarters.md"


@pytest.fixture(scope="module")
def text():
    return page(RESULTS)


SHOWN = [study for study in PICTURES if (RESULTS / "quarters" / study).is_dir()]
"""Studies of photographs that have results."""


def table_of(name, seed, table=UNSEEN, study=PHOTOGRAPHS):
    path = RESULTS / "quarters" / study / f"{name}-s{seed}.json"
    return json.loads(path.read_text(encoding="utf-8"))["tables"][table]


def test_the_page_is_up_to_date(text):
    """If this fails: python -m papers.quarters run --render --docs docs"""
    assert PAGE.read_text(encoding="utf-8") == text
    for study in SHOWN:
        with Image.open(ROOT / "docs" / "figures" / PICTURES[study]) as picture:
            assert picture.text["Description"] == fingerprint(kept_lines(Records(RESULTS, study, SEEDS)))


def test_records_are_those_of_their_runs(text):
    network = [*study_runs([NETWORK]), *replacement_runs(SEEDS, NETWORK_REPLACEMENT)]
    heads = [*study_runs([PHOTOGRAPHS, TEXTS]), *replacement_runs(SEEDS, REPLACEMENT)]
    for run in [run for run in (*network, *heads) if (RESULTS / run.path).is_file()]:
        record = json.loads((RESULTS / run.path).read_text(encoding="utf-8"))
        assert (record["strategy"], record["seed"]) == (run.strategy.name, run.seed)
        assert record["settings"] == Results(RESULTS).settings(run).to_json()
        assert record["environment"]["commit"]
    for study in (NETWORK, NETWORK_REPLACEMENT, PHOTOGRAPHS, REPLACEMENT, TEXTS):
        own = [run for run in (*network, *heads) if run.study == study]
        missing = sum(not (RESULTS / run.path).is_file() for run in own)
        assert not missing or f"Of {len(own)} runs {missing} are missing" in text


def seeds_of(*names, study, table=UNSEEN):
    """The seeds at which all of these strategies were run."""
    return [
        seed for seed in SEEDS
        if all((RESULTS / "quarters" / study / f"{name}-s{seed}.json").is_file() for name in names)
    ]  # fmt: skip


def kept_at_lag_four(name, table, study):
    """mAP of version 5's queries on version 1's gallery, over plain fine-tuning's mAP on its own; one per seed."""
    shares = []
    for seed in seeds_of(name, "plain-reembedded", study=study):
        cells = table_of(name, seed, table, study)["cells"]
        (cell,) = [one for one in cells if (one["queries"], one["gallery"]) == (5, 1)]
        shares.append(cell["mAP"] / table_of("plain-reembedded", seed, table, study)["own"][4]["mAP"])
    return shares


@pytest.mark.parametrize("study", SHOWN)
@pytest.mark.parametrize("table", [UNSEEN, KNOWN])
@pytest.mark.parametrize(("name", "title"), [("ours-bridge", "Cosine-HOC + bridge"), ("plain", "plain, old index")])
def test_shares_are_those_of_the_files(text, name, title, table, study):
    part = text.split(f"## {TITLES[study]}: {table}")[1].split("\n## ")[0]
    (row,) = re.findall(
        rf"^\| {re.escape(title)}(?: \(n = \d\))? \|(.*)\|$",
        part.split("kept, %")[1].split("grew over")[0],
        re.MULTILINE,
    )
    shares = kept_at_lag_four(name, table, study)
    assert row.split("|")[3].strip() == spread(shares)


@pytest.mark.parametrize("study", SHOWN)
def test_the_first_tables_follow_from_the_files(text, study):
    lead, paragraph, _, differences = text.split(f"## {TITLES[study]}\n\n")[1].split("\n\n")[:4]
    rows = {line.split(" | ")[0].strip("| "): line.strip("| ").split(" | ") for line in lead.splitlines()}
    for title, strategy in (("plain fine-tuning + bridge", "plain-bridge"), ("Cosine-HOC + bridge", "ours-bridge")):
        kept = kept_at_lag_four(strategy, UNSEEN, study)
        assert rows[title][2] == f"{100 * statistics.fmean(kept):.1f}"
        grown = [
            table_of(strategy, seed, UNSEEN, study)["mixed"]["mAP"]
            / table_of("plain-reembedded", seed, UNSEEN, study)["own"][4]["mAP"]
            for seed in seeds_of(strategy, "plain-reembedded", study=study)
        ]
        assert rows[title][3] == f"{100 * statistics.fmean(grown):.1f}"
    rows = {line.split(" | ")[0].strip("| "): line for line in differences.splitlines()}
    cells = []
    for table in (UNSEEN, KNOWN):
        late = [
            a - b
            for a, b in zip(
                kept_at_lag_four("distillation-bridge", table, study), kept_at_lag_four("plain-bridge", table, study)
            )
        ]
        cells.append(f"{signed(late)} | {sum(value > 0 for value in late)} of {len(late)}")
    name = "distillation + bridge less plain + bridge: share of mAP kept by version 1's index"
    assert rows[name].endswith(f"| {' | '.join(cells)} |")
    assert f"n = {len(seeds_of('plain-bridge', 'plain-reembedded', study=study))}" in paragraph


def test_numbers_over_seeds():
    assert spread([0.5]) == "50.0"
    assert spread([0.4, 0.6], digits=2) == "50.00±14.14"
    assert spread([]) == "–"
