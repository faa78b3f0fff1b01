"""Recipes are strict: what is unknown, of the wrong type or impossible is refused by name, before anything runs."""

import tomllib

import pytest

from holdfast.core.errors import HoldfastError
from holdfast.train.data import DATASETS
from holdfast.train.experiments.assemble import assemble
from holdfast.train.experiments.load import builtin_recipes, read_recipe
from holdfast.train.experiments.schema import check_recipe
from holdfast.train.methods import METHODS
from holdfast.train.scenarios import SCENARIOS


def put(tables, key, value):
    *path, last = key.split(".")
    for part in path:
        tables = tables[part]
    tables[last] = value


def refusal(tables, *, built=False):
    with pytest.raises(HoldfastError) as error:
        assemble(check_recipe(tables)) if built else check_recipe(tables)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    "key",
    [
        "sed",
        "data.test",
        "data.train.sized",
        "scenario.steps",
        "scenario.num_slots",  # the method's business
        "backbone.depth",
        "method.lamda",
        "methods.simplex_fd.rho",
        "train.epoch",
        "train.seed",  # there is one seed, at the top
        "preprocess.size",
        "evaluation.protocol",
    ],
)
def test_unknown_key(key, tiny_tables):
    tiny_tables |= {"preprocess": {}, "evaluation": {}}
    put(tiny_tables, key, {} if key == "data.test" else 1)
    message = refusal(tiny_tables)
    assert message.startswith(f"{key}: unknown key; known here: ")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("seed", "0"),
        ("seed", -1),
        ("title", 3),
        ("train", 3),
        ("train.epochs", "2"),
        ("train.epochs", 2.5),
        ("train.lr", "fast"),
        ("train.flip", 1),
        ("train.milestones", 0.5),
        ("train.optimizer", "adam"),
        ("train.draw", "random"),
        ("data.train.size", "16"),
        ("scenario.initial", "2"),
        ("scenario.tasks", 2.0),
        ("backbone.width", True),
        ("method.lambda", "0.3"),
        ("method.negatives", "all"),
        ("method.slots", "six"),
        ("methods.simplex_fd.base", "five"),
        ("methods", 3),
        ("preprocess.mean", 0.5),
        ("evaluation.protocols", ["templates"]),
        ("evaluation.protocols", []),
        ("evaluation.batch_size", 0),
    ],
)
def test_wrong_type_or_value(key, value, tiny_tables):
    tiny_tables |= {"preprocess": {}, "evaluation": {}}
    put(tiny_tables, key, value)
    message = refusal(tiny_tables)
    assert message.startswith(key)
    assert message.endswith(f"got {value!r}") or key in ("evaluation.protocols", "methods", "train")


@pytest.mark.parametrize("key", ["data", "scenario", "backbone", "method"])
def test_missing_section(key, tiny_tables):
    del tiny_tables[key]
    assert refusal(tiny_tables) == f"{key}: missing"


@pytest.mark.parametrize("per_class", [0, "3", True, 1.5])
def test_per_class_must_be_a_count(per_class, tiny_tables):
    tiny_tables["data"]["gallery"]["per_class"] = per_class
    assert refusal(tiny_tables).startswith("data.gallery.per_class: must be a whole number")


@pytest.mark.parametrize(
    ("key", "kind", "known"),
    [
        ("method", "method", METHODS),
        ("scenario", "scenario", SCENARIOS),
        ("data.query", "dataset", DATASETS),
        ("backbone", "backbone", ["small", "resnet32", "hf:", "timm:"]),
    ],
)
def test_unknown_name_lists_the_known(key, kind, known, tiny_tables):
    put(tiny_tables, f"{key}.name", "nonesuch")
    message = refusal(tiny_tables)
    assert f"unknown {kind} 'nonesuch'; known: " in message
    assert message.count("unknown") == 1
    assert all(name in message for name in known)


def test_a_random_old_model_is_refused_for_methods_that_read_none(tiny_tables):
    put(tiny_tables, "train.random_reference", True)
    check_recipe(tiny_tables)
    tiny_tables["method"] = {"name": "er"}
    assert "train.random_reference: er reads no features of an old model; leave it out" in refusal(tiny_tables)


@pytest.mark.parametrize(
    ("scenario", "reason"),
    [
        ({"tasks": 3, "increment": 2}, "only one of the two"),
        ({"tasks": None}, "only one of the two"),
        ({"tasks": 4}, "cannot be split evenly"),
        ({"tasks": None, "increment": 3}, "must divide the 4 classes"),
        ({"initial": 7}, "initial must be in 1..6"),
        ({"buffer_per_class": -1}, "buffer_per_class must be at least 0"),
    ],
)
def test_impossible_scenario(scenario, reason, tiny_tables):
    tiny_tables["scenario"] |= scenario
    assert reason in refusal(tiny_tables, built=True)


def test_everything_is_built(tiny_tables):
    tiny_tables["method"]["slots"] = 9
    experiment = assemble(check_recipe(tiny_tables))
    assert [task.num_seen for task in experiment.scenario.tasks] == [2, 4, 6]
    assert experiment.make_method().lambda_ == 0.3
    assert experiment.make_encoder().dim == 8
    assert tuple(experiment.options.milestones) == (50 / 70, 64 / 70)
    tiny_tables["method"] = {"name": "er"}
    assert assemble(check_recipe(tiny_tables)).make_encoder().dim == 32


# Those of pre-training are of another kind: test_recipes_large.py.
RECIPES = [pytest.param(*entry, id=entry[0]) for entry in builtin_recipes() if not entry[0].startswith("pretrain/")]


@pytest.mark.parametrize(("name", "path"), RECIPES)
def test_built_in_recipe(name, path):
    assert read_recipe(str(path))["title"]
    for method in METHODS:
        recipe = check_recipe(read_recipe(name, [f"method.name={method}"]))
        assert recipe.method == method
        assert check_recipe(tomllib.loads(recipe.to_toml())).tables == recipe.tables


def test_there_are_built_in_recipes():
    assert "demo" in dict(builtin_recipes())


def test_written_and_read_again_it_is_the_same_recipe(tiny_tables):
    tiny_tables["title"] = 'with "quotes", \\ and é\n'
    recipe = check_recipe(tiny_tables)
    again = check_recipe(tomllib.loads(recipe.to_toml()))
    assert again.tables == recipe.tables
    assert again.to_toml() == recipe.to_toml()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (["method.scale=frobenius", "method.negatives=paper"], {"scale": "frobenius", "negatives": "paper"}),
        (["method.name=simplex_fd", "method.on=all", "method.distance=squared"], {"on": "all", "distance": "squared"}),
        (["method.name=er", "method.view_weight=0.5"], {"view_weight": 0.5, "rho": 5.0}),
        (["method.name=cvs", "method.view_weight=0.5", "method.rho=3.0"], {"view_weight": 0.5, "rho": 3.0}),
        (["method.name=simplex_hoc_views"], {"lambda": None, "lambda_power": 0.7, "anchors": "all"}),
        (["method.name=simplex_hoc_views", "method.lambda=0.2"], {"lambda": 0.2}),
    ],
)
def test_the_switches_of_ablations_are_reached_from_the_command_line(settings, expected, tiny_recipe, tmp_path):
    """Through the file that a run leaves behind as well: what it is compared with when it goes on."""
    recipe = check_recipe(read_recipe(str(tiny_recipe), settings))
    assert expected.items() <= recipe["method"].items()
    written = tmp_path / "recipe.toml"
    written.write_text(recipe.to_toml())
    assert check_recipe(read_recipe(str(written))).tables == recipe.tables
    assert assemble(recipe).make_method().num_slots in (None, 6)


@pytest.mark.parametrize("key", ["data.train", "scenario", "backbone", "method"])
@pytest.mark.parametrize("name", [None, 3])
def test_missing_name(key, name, tiny_tables):
    put(tiny_tables, f"{key}.name", name)
    assert refusal(tiny_tables) == f"{key}.name: missing; it must be a string"


def test_missing_split(tiny_tables):
    del tiny_tables["data"]["query"]
    assert refusal(tiny_tables).startswith("data.query: missing")


@pytest.mark.parametrize("split", [None, 3])
def test_split_of_a_dataset_must_be_named(split, tiny_tables):
    tiny_tables["data"]["train"]["split"] = split
    assert refusal(tiny_tables).startswith("data.train.split: ")


def test_settings_of_an_unknown_other_method(tiny_tables):
    tiny_tables["methods"]["nonesuch"] = {}
    assert "unknown method 'nonesuch'" in refusal(tiny_tables)


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("method.slots", 5, "5 slots for 6 classes; the method needs 6 slots or more"),
        ("method.lambda", 1.5, "lambda must be in [0, 1]"),
        ("backbone.in_channels", 3, "backbone.in_channels is 3, but the images have 1"),
        ("backbone.width", 0, "width"),
        ("train.epochs", 0, "train.epochs must be at least 1"),
        ("train.weight_decay", -1.0, "train.weight_decay must be at least 0"),
        ("preprocess.mean", [0.5, 0.5, 0.5], "mean"),
        ("data.query.size", 20, "image shapes differ"),
        ("data.train.split", "test", "unknown split of glyphs 'test'"),
    ],
)
def test_impossible_combination(key, value, reason, tiny_tables):
    tiny_tables["preprocess"] = {}
    put(tiny_tables, key, value)
    assert reason in refusal(tiny_tables, built=True)


def test_images_too_small_for_the_backbone(tiny_tables):
    tiny_tables["backbone"] = {"name": "lenet_plus_plus"}
    for split in tiny_tables["data"].values():
        split["size"] = 12
    assert "at least 16 pixels" in refusal(tiny_tables, built=True)


def test_an_unknown_switch_is_refused(tiny_recipe):
    with pytest.raises(HoldfastError, match=r"method\.scale: input should be 'unit' or 'frobenius', got 'rows'"):
        check_recipe(read_recipe(str(tiny_recipe), ["method.scale=rows"]))
