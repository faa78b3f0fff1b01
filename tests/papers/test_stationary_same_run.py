"""Which changes of a recipe make another run, and which only carry the same one out otherwise."""

import pytest

from holdfast.train.experiments.schema import check_recipe
from papers.stationary.cifar_runs import paper_run
from papers.stationary.recipe_files import read_study_recipe
from papers.stationary.study_runs import EXECUTION_OPTIONS, same_run

CELL = paper_run("simplex_hoc", 7)
OTHER_RUN = [
    "seed=5",
    "data.train.split=test",
    "data.train.images_per_class=300",
    "data.query.split=test",
    "data.gallery.split=train",
    "scenario.tasks=16",
    "scenario.initial=40",
    "scenario.order_seed=1993",
    "scenario.buffer_per_class=10",
    "backbone.name=senet18",
    "method.lambda=0.3",
    "method.rho=6.0",
    "method.slots=200",
    "method.negatives=paper",
    "method.name=er",
    "train.epochs=40",
    "train.batch_size=64",
    "train.lr=0.05",
    "train.precision=fp32",
    "preprocess.mean=[0.1,0.1,0.1]",
    'evaluation.protocols=["template"]',
    "evaluation.compact=true",
]
SAME_RUN = [
    "title=another",
    "train.executor=eager",
    "train.checkpoint_minutes=2.5",
    "train.images=stream",
    "evaluation.batch_size=100",
]


def changed(setting):
    return check_recipe(read_study_recipe(CELL.source, [*CELL.overrides, setting]))


@pytest.mark.parametrize("setting", OTHER_RUN)
def test_another_run(setting):
    assert changed(setting).tables != CELL.recipe.tables
    assert not same_run(changed(setting), CELL.recipe)
    assert not CELL.is_of(changed(setting).tables)


@pytest.mark.parametrize("setting", SAME_RUN)
def test_the_same_run(setting):
    assert changed(setting).tables != CELL.recipe.tables
    assert same_run(changed(setting), CELL.recipe)
    assert CELL.is_of(changed(setting).tables)


def test_every_section_and_every_exception_is_tried():
    sections = {setting.partition("=")[0].partition(".")[0] for setting in OTHER_RUN}
    assert sections == set(CELL.recipe.tables) - {"title"}
    assert {f"train.{name}" for name in EXECUTION_OPTIONS} <= {setting.partition("=")[0] for setting in SAME_RUN}
