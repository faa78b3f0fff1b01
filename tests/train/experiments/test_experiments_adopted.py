"""A recipe whose first task is held to an adopted model: run from images to report, by either kind of space."""

import numpy as np
import pytest

from holdfast.core.errors import HoldfastError
from holdfast.core.run_folder import RunFolder
from holdfast.core.storage import read_json
from holdfast.train.data import load_split
from holdfast.train.data.images import image_names
from holdfast.train.encoders import Encoder, Preprocess, build_backbone, extract
from holdfast.train.experiments.assemble import SharedData, assemble
from holdfast.train.experiments.execute import execute
from holdfast.train.experiments.schema import check_recipe
from holdfast.train.versions import adopt, read_adopted


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """The folder of models: one adopted by each way, from an untrained network's features of more glyphs than train."""
    root = tmp_path_factory.mktemp("models")
    options = {"size": 16, "train_classes": 12, "test_classes": 3, "per_class_train": 8}
    images = load_split("glyphs", "train", None, None, **options)
    preprocess = Preprocess(size=16, mean=(0.4,), std=(0.3,), colour="grey")
    old = Encoder(build_backbone("small", width=4, in_channels=1), preprocess=preprocess)
    labels = np.array(images.class_names)[images.labels]
    np.savez(root / "old.npz", features=extract(old, images), labels=labels, ids=image_names(images))
    for way in ("means", "projection"):
        adopt(root / "old.npz", out=root / way, way=way, resamples=100, steps=5)
    return root


def recipe(tables, way, **changes):
    method = {"name": "means_hoc"} if way == "means" else {"name": "simplex_hoc"}
    return check_recipe({**tables, "method": method, "adopted": {"folder": way}, **changes})


@pytest.mark.parametrize("way", ["means", "projection"])
def test_a_run_is_held_to_the_stored_vectors(tiny_tables, models, way, tmp_path):
    chosen = recipe(tiny_tables, way)
    adopted = read_adopted(models / way)
    experiment = assemble(chosen, SharedData(models=models))
    first, second = experiment.scenario.tasks[:2]
    assert (first.start, first.reference, first.model, second.reference) == ("scratch", "loaded", way, "previous")
    table = experiment.load_reference(way).table
    assert table.shape == (48, adopted.dim)
    assert table.any(1).all()  # every training image has its vector, found by its pixels
    metrics = execute(chosen, RunFolder(tmp_path / "run"), shared=SharedData(models=models), device="cpu")
    assert len(metrics["tasks"]) == 3
    config = read_json(tmp_path / "run" / "models" / "03" / "config.json")
    assert config["dim"] == adopted.dim
    if adopted.registry is not None:  # known classes keep the slots that the adopted model gave them
        owners = config["info"]["slots"]["owners"]
        assert owners == dict(adopted.registry.owners)


@pytest.mark.parametrize(
    ("way", "changes", "message"),
    [
        ("means", {"method": {"name": "simplex_hoc"}}, "the adopted space has no simplex; train with means_hoc"),
        ("projection", {"method": {"name": "means_hoc"}}, "is a simplex of 24 slots"),
        ("projection", {"method": {"name": "simplex_hoc", "slots": 30}}, "a simplex method with 24 slots"),
        ("means", {"method": {"name": "means_hoc", "dim": 5}}, "has 16 dimensions, the trained model 5"),
        ("nowhere", {}, "no adopted model here"),
        ("means", {"adopted": {"folder": "means", "extra": 1}}, "adopted.extra: unknown key"),
    ],
)
def test_what_does_not_fit_is_refused_before_training(tiny_tables, models, way, changes, message):
    with pytest.raises(HoldfastError, match=message):
        assemble(recipe(tiny_tables, way, **changes), SharedData(models=models))
