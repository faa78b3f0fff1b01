"""Files in results/ that cannot stand beside the others are refused by name."""

import json

import pytest

from holdfast.core.errors import HoldfastError
from papers.stationary import PAGES, Results
from papers.stationary.cifar_runs import paper_run
from papers.stationary.result_page import EVERYTHING
from papers.stationary.table2 import PAPER, table2_run


@pytest.fixture
def altered(tmp_path, fake):
    """Write the record of a run with some of it changed; where it lies."""

    def write(run, **changed):
        record = fake(run, tmp_path)
        path = tmp_path / run.path
        path.write_text(json.dumps({**record, **changed}))
        return path

    return write


def on(**fingerprints):
    return {split: {"fingerprint": value} for split, value in fingerprints.items()}


@pytest.mark.parametrize("split", ["train", "query", "gallery"])
def test_runs_on_different_images_are_not_compared(altered, tmp_path, split):
    same = {"train": "a", "query": "b", "gallery": "c"}
    first = altered(table2_run("er", PAPER, 7), data=on(**same))
    altered(table2_run("cvs", PAPER, 16), data=on(**same))
    assert PAGES["table2"].rows(Results(tmp_path), EVERYTHING)
    other = altered(table2_run("cvs", PAPER, 7), data=on(**{**same, split: "d"}))
    with pytest.raises(HoldfastError, match=f"its {split} images .* differ from those of") as refused:
        PAGES["table2"].rows(Results(tmp_path), EVERYTHING)
    assert str(first) in str(refused.value)
    assert str(other) in str(refused.value)


def test_a_winner_is_not_chosen_over_different_images(altered, tmp_path):
    tries = [run for run in PAGES["search"].runs() if run.method == "er"]
    for i, run in enumerate(tries):
        altered(run, data=on(query=str(i == 2)))
    with pytest.raises(HoldfastError, match=r"its query images \(tinyimagenet32_validation\) differ"):
        PAGES["search"].rows(Results(tmp_path), EVERYTHING)


@pytest.mark.parametrize("text", ["[]", "{}", '{"recipe": "er"}'])
def test_what_is_no_record_is_named(altered, tmp_path, text):
    run = paper_run("er", 7)
    path = altered(run)
    path.write_text(text)
    with pytest.raises(HoldfastError, match="not the record of a run, it has no recipe") as refused:
        Results(tmp_path).record(run)
    assert str(refused.value).startswith(f"{path}: ")
