"""What slots are for: after a replacement old galleries still answer, where each class kept its vertex."""

import pytest

from holdfast.core.run_folder import RunFolder
from holdfast.train.experiments.assemble import SharedData
from holdfast.train.experiments.execute import execute
from holdfast.train.experiments.load import with_overrides
from holdfast.train.experiments.pretrain import check_pretrain_recipe, pretrain
from holdfast.train.experiments.schema import check_recipe

TEST_CLASSES = 20
TRAIN = {"batch_size": 32, "schedule": "cosine", "crop_padding": 2, "flip": False}


def glyphs(split, **own):
    return {"name": "glyphs", "split": split, "test_classes": TEST_CLASSES, **own}


def matrix(tmp_path, method):
    """Two models pre-trained from different seeds, the second takes over at the second of two tasks."""
    shared = SharedData(models=tmp_path)
    options = {"name": method, **({"slots": 64} if method.startswith("simplex") else {})}
    for name, classes in (("first", 16), ("second", 24)):
        tables = {
            "seed": classes,
            "namespace": "letters",
            "data": glyphs("train", train_classes=classes, per_class_train=20),
            "backbone": {"name": "small"},
            "method": options,
            "train": {"epochs": 7, "lr": 0.3, **TRAIN},
        }
        pretrain(check_pretrain_recipe(tables), RunFolder(tmp_path / name), shared=shared, device="cpu")
    tables = {
        "data": {
            "train": glyphs("train", train_classes=20, per_class_train=20),
            "query": glyphs("query", per_class_query=20),
            "gallery": glyphs("gallery", per_class_gallery=10),
        },
        "scenario": {
            "name": "iam_cl2r",
            "model": "first",
            "replace_at": [2],
            "replace_with": ["second"],
            "initial": 10,
            "tasks": 2,
        },
        "method": options,
        "train": {"epochs": 2, "lr": 0.01, **TRAIN},
        "evaluation": {"protocols": ["template"]},
    }
    metrics = execute(
        check_recipe(with_overrides(tables, ())), RunFolder(tmp_path / "run"), shared=shared, device="cpu"
    )
    return metrics["protocols"]["template"]["matrix"]


@pytest.mark.slow
def test_only_shared_slots_survive_a_replacement(tmp_path):
    chance = 1 / TEST_CLASSES
    simplex, trainable = matrix(tmp_path / "simplex", "simplex_hoc"), matrix(tmp_path / "trainable", "er")
    for found in (simplex, trainable):
        assert min(found[0][0], found[1][1]) > 6 * chance  # both models are worth something by themselves
    assert simplex[1][0] > 4 * chance
    assert trainable[1][0] < 2.5 * chance
