"""Files in results/ that cannot stand beside the others are refused by name."""

import json

import pytest

from holdfast.errors import HoldfastError
from papers.stationary import EXHIBITS, Results
from papers.stationary.cifar_cells import paper_cell
from papers.stationary.exhibit import EVERYTHING


@pytest.fixture
def altered(tmp_path, fake):
    """Write the record of a cell with some of it changed; where it lies."""

    def write(cell, **changed):
        record = fake(cell, tmp_path)
        path = tmp_path / cell.path
        path.write_text(json.dumps({**record, **changed}))
        return path

    return write


def on(**fingerprints):
    return {split: {"fingerprint": value} for split, value in fingerprints.items()}


@pytest.mark.parametrize("split", ["train", "query", "gallery"])
def test_runs_on_different_images_are_not_compared(altered, tmp_path, split):
    same = {"train": "a", "query": "b", "gallery": "c"}
    first = altered(paper_cell("er", 7), data=on(**same))
    altered(paper_cell("cvs", 16), data=on(**same))
    assert EXHIBITS["table2"].rows(Results(tmp_path), EVERYTHING)
    other = altered(paper_cell("cvs", 7), data=on(**{**same, split: "d"}))
    with pytest.raises(HoldfastError, match=f"its {split} images .* are others than those of") as refused:
        EXHIBITS["table2"].rows(Results(tmp_path), EVERYTHING)
    assert str(first) in str(refused.value)
    assert str(other) in str(refused.value)


def test_a_winner_is_not_chosen_over_different_images(altered, tmp_path):
    tries = [cell for cell in EXHIBITS["tries"].cells() if cell.method == "er"]
    for i, cell in enumerate(tries):
        altered(cell, data=on(query=str(i == 2)))
    with pytest.raises(HoldfastError, match=r"its query images \(tinyimagenet32_validation\) are others"):
        EXHIBITS["tries"].rows(Results(tmp_path), EVERYTHING)


def test_other_images_are_expected_where_the_recipes_name_others(altered, tmp_path):
    tries = [cell for cell in EXHIBITS["tries"].cells() if cell.method == "er"]
    cells = [paper_cell("er", 7), tries[0]]
    for cell, images in zip(cells, "ab"):
        altered(cell, data=on(train="same", query=images))
    results = Results(tmp_path)
    assert all(results.record(cell) for cell in cells)


def test_a_record_of_another_version_is_named(altered, tmp_path):
    cell = paper_cell("er", 7)
    recipe = json.loads(json.dumps(dict(cell.recipe.tables)))
    recipe["train"]["warm_up"] = 5
    path = altered(cell, recipe=recipe)
    with pytest.raises(HoldfastError, match="warm_up") as refused:
        Results(tmp_path).record(cell)
    assert str(refused.value).startswith(f"{path}: ")


@pytest.mark.parametrize("text", ["[]", "{}", '{"recipe": "er"}'])
def test_what_is_no_record_is_named(altered, tmp_path, text):
    cell = paper_cell("er", 7)
    path = altered(cell)
    path.write_text(text)
    with pytest.raises(HoldfastError, match="has no recipe; it is not the record of a run") as refused:
        Results(tmp_path).record(cell)
    assert str(refused.value).startswith(f"{path}: ")
