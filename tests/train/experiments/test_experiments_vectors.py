"""Embeddings train like images: a recipe of vectors from file to matrix, and a model that encodes vectors."""

import numpy as np
import pytest
import torch

from holdfast.core.errors import HoldfastError
from holdfast.core.run_folder import RunFolder
from holdfast.train.encoders import Encoder, VectorInput
from holdfast.train.experiments.assemble import SharedData, assemble
from holdfast.train.experiments.execute import execute
from holdfast.train.experiments.load import read_recipe
from holdfast.train.experiments.schema import check_recipe

WIDTH = 12


def draw(classes, count, seed, shift=0):
    """``count`` vectors of each class around its own centre, the same for every draw of one class."""
    rng = np.random.default_rng([seed, 1])
    centres = np.random.default_rng(5).normal(size=(40, WIDTH)) * 3
    labels = np.repeat(np.arange(shift, shift + classes), count)
    return centres[labels] + rng.normal(size=(len(labels), WIDTH)), labels


@pytest.fixture
def embeddings(tmp_path):
    """Six trained classes, four others as queries and gallery, in one file."""
    parts = {"train": draw(6, 12, 0), "query": draw(4, 6, 1, shift=6), "gallery": draw(4, 6, 2, shift=6)}
    np.savez(
        tmp_path / "embeddings.npz",
        features=np.concatenate([x for x, _ in parts.values()]),
        labels=np.concatenate([y for _, y in parts.values()]),
        split=np.concatenate([[name] * len(y) for name, (_, y) in parts.items()]),
    )
    return tmp_path


@pytest.fixture
def tables():
    return {
        "title": "vectors",
        "data": {part: {"name": "vectors", "split": part, "path": "embeddings.npz"} for part in
                 ("train", "query", "gallery")},
        "scenario": {"name": "cl2r", "initial": 2, "tasks": 3, "buffer_per_class": 3},
        "backbone": {"name": "mlp", "hidden": 16, "width": 8},
        "method": {"name": "simplex_hoc", "lambda": 0.3},
        "train": {"epochs": 3, "batch_size": 8, "lr": 0.05},
    }  # fmt: skip


def refusal(tables, root):
    with pytest.raises(HoldfastError) as error:
        assemble(check_recipe(tables), SharedData(root))
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("backbone", [{"name": "mlp", "hidden": 16, "width": 8}, {"name": "linear", "width": 8}])
@pytest.mark.parametrize("placement", ["device", "stream"])
def test_a_run(backbone, placement, tables, embeddings):
    tables["backbone"] = backbone
    tables["train"]["images"] = placement
    tables["preprocess"] = {"unit": True}
    recipe = check_recipe(tables)
    folder = RunFolder(embeddings / "run")
    metrics = execute(recipe, folder, shared=SharedData(embeddings), device="cpu")
    assert check_recipe(read_recipe(str(folder.recipe))).tables == recipe.tables
    matrix = np.array(metrics["protocols"]["instance"]["matrix"], dtype=float)
    assert matrix.shape == (3, 3)
    assert matrix[2, 2] > 0.5  # four well separated classes: chance is a quarter
    encoder = Encoder.from_pretrained(folder.model(3))
    assert encoder.preprocess == VectorInput(WIDTH, unit=True)


def test_encode_gives_what_was_stored(tables, embeddings):
    folder = RunFolder(embeddings / "run")
    experiment = assemble(check_recipe(tables), SharedData(embeddings))
    execute(check_recipe(tables), folder, shared=SharedData(embeddings), device="cpu")
    encoder = Encoder.from_pretrained(folder.model(3))
    stored = np.load(folder.features / "03" / "query.npy")
    rows = experiment.data.query.images[:, 0, 0]
    np.testing.assert_allclose(encoder.encode(rows).numpy(), stored, atol=1e-6)
    np.testing.assert_allclose(encoder.encode(torch.from_numpy(rows), batch_size=5).numpy(), stored, atol=1e-6)
    np.testing.assert_allclose(encoder.encode(list(rows)).numpy(), stored, atol=1e-6)
    np.testing.assert_allclose(encoder.encode(rows[0]).numpy(), stored[:1], atol=1e-6)


@pytest.mark.parametrize(
    ("section", "key", "value", "reason"),
    [
        ("train", "crop_padding", 4, "train.crop_padding is for images, and these are vectors; set it to 0"),
        ("train", "flip", True, "train.flip is for images, and these are vectors; set it to false"),
        ("train", "resized_crop", 8, "train.resized_crop is for images"),
        ("preprocess", "mean", [0.5], "preprocess.mean is for images, and these are vectors; leave it out"),
        ("backbone", "in_channels", 13, "backbone.in_channels is 13, but the vectors have 12"),
        ("backbone", "dropout", 1.0, "dropout must be in [0, 1)"),
        ("method", "name", "simplex_hoc_views", "reads a second view of each image, and vectors have only one"),
    ],
)
def test_what_only_images_have_is_refused_by_name(section, key, value, reason, tables, embeddings):
    if section == "method":
        tables["method"] = {}
    tables.setdefault(section, {})[key] = value
    assert reason in refusal(tables, embeddings)


def test_unit_is_for_vectors(tiny_tables):
    tiny_tables["preprocess"] = {"unit": True}
    with pytest.raises(HoldfastError, match=r"preprocess\.unit is for vectors, and these are images"):
        assemble(check_recipe(tiny_tables))


@pytest.mark.parametrize("rows", [np.zeros((2, WIDTH + 1)), np.zeros(3), [np.zeros(WIDTH), np.zeros(2)], "a.png", None])
def test_encode_refuses_another_width(rows):
    encoder = Encoder(torch.nn.Linear(WIDTH, 4), feature_dim=4, preprocess=VectorInput(WIDTH))
    with pytest.raises(HoldfastError) as error:
        encoder.encode(rows)
    assert f"{WIDTH} numbers" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_network_for_images_takes_no_vectors(tables, embeddings):
    tables["backbone"] = {"name": "small"}
    assert "the backbone takes no vectors of 12" in refusal(tables, embeddings)


@pytest.mark.parametrize("stored", [{"kind": "vectors", "width": 0, "unit": False}, {"kind": "vectors", "width": 3}])
def test_a_bad_description(stored):
    from holdfast.train.encoders.preprocess import input_from_json

    with pytest.raises(HoldfastError, match="vectors: "):
        input_from_json(stored)
