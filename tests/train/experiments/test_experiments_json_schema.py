"""The schema for editors agrees with the check that runs: what one takes and refuses, the other does too."""

import copy
import tomllib

import pytest

from holdfast.core.errors import HoldfastError
from holdfast.train.experiments.json_schema import recipe_json_schema
from holdfast.train.experiments.load import builtin_recipes, read_recipe
from holdfast.train.experiments.schema import check_recipe

jsonschema = pytest.importorskip("jsonschema")


@pytest.fixture(scope="module")
def validator():
    schema = recipe_json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_built_in_recipes_are_valid(validator):
    tried = 0
    for name, path in builtin_recipes():
        try:
            check_recipe(read_recipe(name))
        except HoldfastError:
            continue  # not a recipe of ``holdfast run``
        errors = [error.message for error in validator.iter_errors(tomllib.loads(path.read_text(encoding="utf-8")))]
        assert not errors, name
        tried += 1
    assert tried >= 12


@pytest.mark.parametrize(
    ("section", "key", "value", "valid"),
    [
        ("backbone", "width", 16, True),
        ("backbone", "depth", 16, False),
        ("backbone", "freeze", ["stages.0"], True),
        ("backbone", "freeze", "stages.0", False),
        ("backbone", "name", "nonesuch", False),
        ("method", "lambda", 0.1, True),
        ("method", "lamda", 0.1, False),
        ("method", "lambda", "small", False),
        ("method", "name", "nonesuch", False),
        ("train", "epochs", 3, True),
        ("train", "epochs", "3", False),
        ("train", "lr_groups", {"backbone": 0.1}, True),
        ("train", "seed", 1, False),
        ("scenario", "initial", 2, True),
        ("scenario", "steps", 2, False),
        ("evaluation", "protocols", ["nonesuch"], False),
        ("preprocess", "unit", True, True),
        ("extra", "key", 1, False),
    ],
)
def test_it_agrees_with_the_check(section, key, value, valid, validator, tiny_tables):
    tables = copy.deepcopy(tiny_tables)
    tables.setdefault(section, {})[key] = value
    assert validator.is_valid(tables) == valid
    if valid:
        check_recipe(tables)
    else:
        with pytest.raises(HoldfastError):
            check_recipe(tables)


def test_own_code_and_other_libraries_may_be_named(validator, tiny_tables):
    for name in ("my.nets:tower", "timm:resnet10t", "hf:vit"):
        tiny_tables["backbone"] = {"name": name, "weights": "w.pt"}
        assert validator.is_valid(tiny_tables), name
    tiny_tables["backbone"]["widht"] = 3  # transformers takes no such option
    assert not validator.is_valid(tiny_tables)


def test_a_method_of_ones_own_may_be_named(validator, tiny_tables):
    tiny_tables["method"] = {"name": "my.methods:Mine", "weight": 5.0}
    assert validator.is_valid(tiny_tables)
    tiny_tables["method"] = {"name": "er", "weight": 5.0}
    assert not validator.is_valid(tiny_tables)


def test_missing_sections_and_splits(validator, tiny_tables):
    without = {key: value for key, value in tiny_tables.items() if key != "method"}
    assert not validator.is_valid(without)
    assert validator.is_valid({"extends": "base.toml", "train": {"epochs": 3}})
    del tiny_tables["data"]["query"]["split"]
    assert not validator.is_valid(tiny_tables)
