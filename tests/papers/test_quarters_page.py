"""The page of the quarterly study is that of the committed results, and its numbers follow from them."""

import json
import re
import statistics
from pathlib import Path

import pytest
from PIL import Image

from papers.quarters.execute import SEEDS, Results, study_runs, trainee_of_study
from papers.quarters.goals import goals, signed, verdict
from papers.quarters.page import CAPTION, PICTURES, TITLES, page, write_page
from papers.quarters.picture import kept_lines
from papers.quarters.replacement import replacement_runs
from papers.quarters.settings_search import chosen_settings, read_tries
from papers.quarters.shares import Records, spread
from papers.quarters.strategies import STRATEGIES
from papers.quarters.study_data import (
    KNOWN,
    NETWORK,
    NETWORK_REPLACEMENT,
    PHOTOGRAPHS,
    REPLACEMENT,
    TEXTS,
    UNSEEN,
)
from papers.quarters.trainees import HEAD, HOC, TURNED
from papers.quarters.trainees import NETWORK as WHOLE_NETWORK
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


@pytest.mark.parametrize("study", SHOWN)
def test_missed_and_open_goals_are_named(text, study):
    records = Records(RESULTS, study, SEEDS)
    found = goals(records)
    assert len(found) == 4
    part = text.split(f"## {TITLES[study]}\n\n")[1].split("\n## ")[0]
    missed = sum(goal.verdict == "**missed**" for goal in found)
    is_open = not records.seeds("turned-bridge")
    said = "has not been run here yet, so its goals are open." if is_open else f"misses {missed} of its 4 goals."
    assert said in verdict(records, trainee_of_study(study).name)
    for goal in found:
        (line,) = [line for line in part.splitlines() if line.startswith(f"| {goal.what} |")]
        assert ("missed" in line) == (not goal.mean and not is_open)
        assert ("open" in line) == is_open


@pytest.mark.parametrize("study", SHOWN)
def test_the_goals_follow_from_the_files(study):
    found = {goal.what[:12]: goal for goal in goals(Records(RESULTS, study, SEEDS))}
    exposure, own, late = (found[start] for start in ("exposure rat", "own recall@1", "version 1's "))
    seeds = seeds_of("turned-bridge", "plain-bridge", "plain-reembedded", study=study)
    if not seeds:
        assert {goal.verdict for goal in found.values()} == {"open"}
        return
    ratios = [table_of("turned-bridge", seed, study=study)["mixed"]["exposure@10"] for seed in seeds]
    means = [statistics.fmean(one) for one in zip(*ratios, strict=True)]
    assert exposure.mean == all(0.8 <= ratio <= 1.25 for ratio in means)
    assert exposure.found.startswith(" ".join(f"{ratio:.2f}" for ratio in means))
    rivals = [name for name in ("plain-reembedded", "plain-random", "distillation") if seeds_of(name, study=study)]
    recall = {
        name: statistics.fmean(table_of(name, seed, study=study)["own"][4]["recall@1"] for seed in seeds)
        for name in ("turned-bridge", *rivals)
    }
    assert own.mean == (recall.pop("turned-bridge") - max(recall.values()) >= -0.015)
    kept = {name: kept_at_lag_four(name, UNSEEN, study) for name in ("turned-bridge", "plain-bridge")}
    ahead = statistics.fmean(kept["turned-bridge"]) - statistics.fmean(kept["plain-bridge"][: len(seeds)])
    assert late.mean == (ahead >= 0.01)


def test_every_method_has_the_same_number_of_tries():
    tries = [one["training"] for one in read_tries(RESULTS / "quarters", HEAD)]
    searched = {name for name, settings in HEAD.tries.items() if len(settings) > 1}
    assert set(tries) - searched == {"distillation with a linear classifier"}  # shown, but not a candidate
    assert {tries.count(name) for name in tries} == {4}
    trained = {strategy.training for strategy in STRATEGIES if seeds_of(strategy.name, study=PHOTOGRAPHS)}
    assert searched & trained <= set(tries)


def test_networks_have_the_options_that_were_chosen_for_heads():
    """But for the simplex: its options are the paper's, and those of a pilot with networks."""
    for training in set(WHOLE_NETWORK.tries) - {HOC, TURNED}:
        own, head = (chosen_settings(RESULTS / "quarters", one, training) for one in (WHOLE_NETWORK, HEAD))
        assert (own.method, own.options) == (head.method, head.options)


def test_without_results_the_page_says_so(tmp_path):
    (tmp_path / "quarters").mkdir()
    (tmp_path / "quarters" / "tries.json").write_text((RESULTS / "quarters" / "tries.json").read_text())
    write_page(tmp_path, tmp_path / "docs")
    written = (tmp_path / "docs" / "results" / "quarters.md").read_text()
    assert "There are no results yet." in written
    assert CAPTION not in written


def test_with_some_strategies_the_page_has_what_is_there(tmp_path):
    folder = tmp_path / "quarters"
    folder.mkdir()
    (folder / "tries.json").write_text((RESULTS / "quarters" / "tries.json").read_text())
    for file in (RESULTS / "quarters" / PHOTOGRAPHS).glob("plain-reembedded-s*.json"):
        (folder / PHOTOGRAPHS).mkdir(exist_ok=True)
        (folder / PHOTOGRAPHS / file.name).write_text(file.read_text())
    write_page(tmp_path, tmp_path / "docs")
    written = (tmp_path / "docs" / "results" / "quarters.md").read_text()
    assert "Each model on its own gallery:" in written
    assert "the highest mAP in the grown gallery has" not in written


def test_numbers_over_seeds():
    assert spread([0.5]) == "50.0"
    assert spread([0.4, 0.6], digits=2) == "50.00±14.14"
    assert spread([]) == "–"
