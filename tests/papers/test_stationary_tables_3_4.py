"""The recipes of Tables 3 and 4: the paper's settings, and files in the downloaded layouts all the way through."""

import numpy as np
import pytest

from holdfast.core.run_folder import RunFolder
from holdfast.train.engine.schedule import learning_rate
from holdfast.train.experiments.assemble import SharedData, assemble
from holdfast.train.experiments.execute import execute
from holdfast.train.experiments.schema import check_recipe
from holdfast.train.methods import METHODS
from made_up_sets import cub, tiny_imagenet, tiny_imagenet_20
from papers.stationary.recipe_files import read_study_recipe

TINY, CUB = "tinyimagenet200-20", "cub180-20"
METHOD_NAMES = ("er", "fan", "bct", "lce", "advbct", "cvs", "simplex_fd", "simplex_hoc")
INCOMPLETE = [f"data.{part}.incomplete=true" for part in ("train", "query", "gallery")]
SMALL = ["backbone.name=small", "backbone.width=8", "scenario.initial=2", "scenario.tasks=2", "train.batch_size=4"]
SMALL += ["train.epochs=1", "train.precision=fp32", "train.executor=auto", *INCOMPLETE]
SMALL_CUB = ["data.train.size=20", "train.resized_crop=16"]
SMALL_CUB += [f"data.{part}.{key}" for part in ("query", "gallery") for key in ("size=16", "resize=20")]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    tiny_imagenet(root, tuple(f"n0{i}000000" for i in range(4)))
    tiny_imagenet_20(root)
    cub(root, (1, 2, 3, 4, 181, 182, 190))
    return SharedData(root)


def recipe(family, method, *settings):
    return check_recipe(read_study_recipe(f"{family}/{method}", settings))


@pytest.mark.parametrize("method", METHOD_NAMES)
def test_the_papers_settings(method):
    tiny, birds = recipe(TINY, method), recipe(CUB, method)
    assert tiny.method == birds.method == method
    common = {"optimizer": "sgd", "momentum": 0.9, "weight_decay": 5e-4, "schedule": "step", "flip": True}
    for checked, expected, initial, backbone in (
        (tiny, {"epochs": 90, "batch_size": 256, "lr": 0.1, "crop_padding": 8, "resized_crop": 0}, 50, "resnet18"),
        (birds, {"epochs": 150, "batch_size": 64, "lr": 0.01, "crop_padding": 0, "resized_crop": 224}, 60, "resnet50"),
    ):
        assert {key: checked["train"][key] for key in (*common, *expected)} == {**common, **expected}
        assert checked["scenario"]["initial"] == initial
        assert checked["scenario"]["buffer_per_class"] == 20
        assert checked["backbone"] == {"name": backbone, "stem": "imagenet", "in_channels": None}
    if method.startswith("simplex"):
        assert (tiny["method"]["slots"], birds["method"]["slots"]) == (200, 180)
    if method == "simplex_hoc":
        assert [(r["method"]["lambda"], r["method"]["rho"]) for r in (tiny, birds)] == [(0.1, 10.0), (0.5, 10.0)]


@pytest.mark.parametrize("method", METHOD_NAMES)
def test_small_files_in_both_layouts_make_an_experiment(method, data):
    for family, settings, shape in ((TINY, [], (64, 64)), (CUB, SMALL_CUB, (16, 16))):
        experiment = assemble(recipe(family, method, *SMALL, *settings), data)
        assert isinstance(experiment.make_method(), METHODS[method])
        assert len(experiment.scenario) == 2
        preprocess = experiment.make_encoder().preprocess
        assert preprocess.height_width == shape
        assert experiment.data.overlap == ()
        assert set(experiment.data.query.class_names) == set(experiment.data.gallery.class_names)


def test_the_rates_drop_at_the_papers_epochs(data):
    for family, settings, drops in ((TINY, [], [30, 60]), (CUB, SMALL_CUB, [60, 90, 120])):
        whole = [setting for setting in SMALL if not setting.startswith("train.epochs")]
        options = assemble(recipe(family, "er", *whole, *settings), data).options
        rates = np.array([learning_rate(options, epoch) for epoch in range(options.epochs)])
        assert (np.flatnonzero(np.diff(rates)) + 1).tolist() == drops


@pytest.mark.slow
def test_bird_recipe_at_its_own_size(data):
    experiment = assemble(
        recipe(CUB, "simplex_hoc", "scenario.initial=2", "scenario.tasks=2", *INCOMPLETE), data
    )  # which sends one picture through the network
    assert experiment.data.train.images.shape[1:] == (256, 256, 3)
    assert experiment.data.query.images.shape[1:] == (224, 224, 3)
    preprocess = experiment.make_encoder().preprocess
    assert (preprocess.height_width, preprocess.resize) == ((224, 224), 256)


@pytest.mark.parametrize(("family", "settings"), [(TINY, []), (CUB, SMALL_CUB)])
def test_from_pictures_to_a_matrix(family, settings, data, tmp_path):
    metrics = execute(recipe(family, "cvs", *SMALL, *settings), RunFolder(tmp_path / "run"), shared=data, device="cpu")
    matrix = metrics["protocols"]["template"]["matrix"]
    assert [[cell is None for cell in row] for row in matrix] == [[False, True], [False, False]]
    assert metrics["data"]["open_set"] is True
