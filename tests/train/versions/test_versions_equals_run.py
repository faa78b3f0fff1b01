"""Version after version, each from the folder of the one before, is what one run over the same tasks gives."""

import tomllib
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from letters_on_disk import RECIPE, SIZE

from holdfast.core.errors import HoldfastError
from holdfast.core.run_folder import RunFolder
from holdfast.train.data import load_split
from holdfast.train.encoders import Encoder, extract
from holdfast.train.evaluation import compatibility_matrix
from holdfast.train.experiments.execute import execute
from holdfast.train.experiments.load import with_overrides
from holdfast.train.experiments.schema import check_recipe, to_toml
from holdfast.train.versions import start, update

CL2R = """
[scenario]
name = "cl2r"
initial = 3
increment = 2
buffer_per_class = 3
"""


def run_tables(photos: Path, method: str) -> dict:
    data = "".join(
        f'[data.{part}]\nname = "folder"\nsplit = "train"\npath = "{photos / where}"\nsize = {SIZE}\ncolour = "grey"\n'
        for part, where in (("train", "all"), ("query", "query"), ("gallery", "gallery"))
    )
    changes = [] if method == "simplex_hoc" else [f"method.name={method}"]
    if method != "simplex_hoc" and method.startswith("simplex"):
        changes.append("method.slots=12")
    return with_overrides(tomllib.loads(RECIPE + CL2R + data), changes)


# A classifier that grows, maps between models, features of past models: all that is handed on.
OTHERS = ("er", "fan", "simplex_hoc_views")


@pytest.mark.parametrize("method", ["simplex_hoc", *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)])
def test_three_updates_are_a_run_of_four_tasks(method, photos, tmp_path):
    tables = run_tables(photos, method)
    metrics = execute(check_recipe(tables), RunFolder(tmp_path / "run"), device="cpu")
    recipe = tmp_path / "run.toml"  # the very same recipe: its data and scenario tables are passed over
    recipe.write_text(to_toml(tables))

    versions = [tmp_path / str(number) for number in (1, 2, 3, 4)]
    everything = ["held_out.share=0"]
    start(photos / "1", versions[0], settings=recipe, changes=everything, device="cpu")
    for before, after in pairwise(versions):
        info = update(before, photos / after.name, after, device="cpu", check_on=photos / "query")
    assert info["task"] == 4

    query, gallery = (load_split("folder", "train", path=str(photos / part), size=SIZE, colour="grey")
                      for part in ("query", "gallery"))  # fmt: skip
    models = [Encoder.from_pretrained(folder) for folder in versions]
    features = [(extract(model, query), extract(model, gallery)) for model in models]
    if method != "fan":  # whose galleries pass through maps, which this matrix leaves out
        matrix = compatibility_matrix(features, query.labels, gallery.labels, protocol="instance")
        expected = np.array(metrics["protocols"]["instance"]["matrix"], dtype=float)
        np.testing.assert_allclose(matrix, expected, atol=1e-6)
    for number, model in enumerate(models, start=1):  # and more than the matrix: the same weights, the same slots
        there = Encoder.from_pretrained(tmp_path / "run" / "models" / f"{number:02d}")
        for name, weight in there.state_dict().items():
            torch.testing.assert_close(model.state_dict()[name], weight, rtol=0, atol=0, msg=f"{number} {name}")
        assert model.info["slots"]["owners"] == there.info["slots"]["owners"]


@pytest.mark.slow
def test_from_the_middle_of_a_run(photos, tmp_path):
    """A run's model has no buffer; drawn from the same images, it is the one that the run would have replayed."""
    run = RunFolder(tmp_path / "run")
    execute(check_recipe(run_tables(photos, "simplex_hoc")), run, device="cpu")
    out = tmp_path / "3"
    everything = {"changes": ["held_out.share=0"], "buffer_from": photos / "all", "device": "cpu"}
    update(run.model(2), photos / "3", out, check_on=photos / "query", **everything)
    assert (out / "model.safetensors").read_bytes() == (run.model(3) / "model.safetensors").read_bytes()
    with pytest.raises(HoldfastError, match=r"method.name: er, but .* was trained with simplex_hoc"):
        update(run.model(2), photos / "3", tmp_path / "4", device="cpu", changes=["method.name=er"])
