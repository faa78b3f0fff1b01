"""A folder that is no finished run is called what it is, and the command that fits is named."""

import pytest

from holdfast.core.errors import HoldfastError
from holdfast.core.run_folder import not_a_run_error
from papers.run_pages import read_run

FOLDERS = [
    (["config.json", "recipe.toml"], "to compare two models, embed items with both"),
    (["config.json", "recipe.toml", "update.json", "seal.json"], "a version made by holdfast start or update, not a"),
    (["config.json", "recipe.toml", "update.json", "seal.json", "check.html"], "check.html has its check"),
    (["recipe.toml", "update.json"], "a version with unfinished training"),
    (["recipe.toml"], "a model with unfinished training, not a run; repeat holdfast pretrain"),
    (["catalogue.sqlite"], "a gallery, not a run; use holdfast gallery stats"),
    (["er/metrics.json", "fan/metrics.json", "notes.txt"], "contains run folders; name them: er, fan"),
    (["notes.txt"], "not a run folder (no recipe.toml in it)"),
]


def made(folder, names, recipe=""):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(recipe if name == "recipe.toml" else "")
    return folder


@pytest.mark.parametrize(("names", "words"), FOLDERS)
def test_each_kind(names, words, tmp_path):
    folder = made(tmp_path / "it", names)
    with pytest.raises(HoldfastError) as caught:
        read_run(folder)
    assert str(caught.value).startswith(f"{folder}: ")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_only_a_run_can_be_resumed(tmp_path):
    run = made(tmp_path / "run", ["recipe.toml", "models/01/config.json"], '[scenario]\nname = "cl2r"\n')
    resumed = f"an unfinished run; resume it by holdfast run RECIPE --out {run}"
    assert resumed in str(not_a_run_error(run))
    assert str(not_a_run_error(run / "models/01")).endswith(f"one model of a run; give the run's folder, {run}")
    (run / "recipe.toml").write_text("[scenario")
    assert "not readable" in str(not_a_run_error(run))


def test_nothing_and_a_file(tmp_path):
    assert "it does not exist" in str(not_a_run_error(tmp_path / "none"))
    (tmp_path / "file").write_text("")
    assert "a file, not a run folder" in str(not_a_run_error(tmp_path / "file"))
