"""Finding recipes and overriding what they say."""

import pytest

from holdfast.core.errors import HoldfastError
from holdfast.train.experiments.load import find_recipe, read_recipe, with_overrides
from holdfast.train.experiments.schema import check_recipe


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("train.epochs=3", 3),
        ("train.epochs = 3", 3),
        ("train.epochs=0.5", 0.5),
        ("train.epochs=true", True),
        ("train.epochs=[1, 2]", [1, 2]),
        ('train.epochs="3"', "3"),
        ("train.epochs=er", "er"),
        ("train.epochs=tar@far=0.01", "tar@far=0.01"),
        ("train.epochs=", ""),
    ],
)
def test_values_are_toml_or_plain_text(setting, value, tiny_tables):
    found = with_overrides(tiny_tables, [setting])["train"]["epochs"]
    assert found == value
    assert type(found) is type(value)
    assert tiny_tables["train"]["epochs"] == 2  # the recipe itself is left as it was


def test_new_tables_are_made_and_the_last_one_wins(tiny_tables):
    found = with_overrides(tiny_tables, ["evaluation.batch_size=1", "seed=3", "seed=4"])
    assert found["evaluation"] == {"batch_size": 1}
    assert found["seed"] == 4


@pytest.mark.parametrize("setting", ["train.epochs", "=3", "train.=3", ".epochs=3", "train..epochs=3"])
def test_bad_syntax(setting, tiny_tables):
    with pytest.raises(HoldfastError, match=r"write it as table\.key=value"):
        with_overrides(tiny_tables, [setting])


def test_another_method_brings_its_own_settings(tiny_tables):
    found = with_overrides(tiny_tables, ["method.base=4.0", "method.name=simplex_fd"])  # in whatever order
    assert found["method"] == {"name": "simplex_fd", "base": 4.0}
    assert with_overrides(tiny_tables, ["method.name=simplex_fd"])["method"] == {"name": "simplex_fd", "base": 2.0}
    assert with_overrides(tiny_tables, ["method.name=er"])["method"] == {"name": "er"}
    assert check_recipe(with_overrides(tiny_tables, ["method.name=er"])).method == "er"


def test_the_same_method_keeps_its_settings(tiny_tables):
    found = with_overrides(tiny_tables, ["method.name=simplex_hoc"])
    assert found["method"] == {"name": "simplex_hoc", "lambda": 0.3}


def test_recipes_are_found_by_path_or_name(tiny_recipe):
    assert find_recipe(str(tiny_recipe)) == tiny_recipe
    assert find_recipe("demo").samefile(find_recipe("recipes/demo.toml"))
    with pytest.raises(
        HoldfastError, match=r"nonesuch: no such file, and no built-in recipe of this name; known: .*demo"
    ):
        find_recipe("nonesuch")


@pytest.mark.parametrize("content", [b"a = ", b"[a", b"\xff\xfe", b"a = 1\na = 2"])
def test_a_file_that_is_no_toml(content, tmp_path):
    path = tmp_path / "a.toml"
    path.write_bytes(content)
    with pytest.raises(HoldfastError, match=str(path)) as error:
        read_recipe(str(path))
    assert "\n" not in str(error.value)


def test_a_recipe_may_say_only_what_it_changes(tiny_recipe, tmp_path):
    (tmp_path / "base.toml").write_text(tiny_recipe.read_text())
    changed = tmp_path / "sub" / "mine.toml"
    changed.parent.mkdir()
    changed.write_text('extends = "../base.toml"\nseed = 3\n[method]\nrho = 7.0\n[train]\nmilestones = [0.5]\n')
    found, base = read_recipe(str(changed)), read_recipe(str(tiny_recipe))
    assert found["method"] == {"name": "simplex_hoc", "lambda": 0.3, "rho": 7.0}
    assert found["train"] == {**base["train"], "milestones": [0.5]}
    assert found["seed"] == 3
    assert found["data"] == base["data"]
    assert check_recipe(read_recipe(str(changed), ["seed=4"])).seed == 4


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('extends = "nonesuch.toml"', "which does not exist"),
        ("extends = 3", "which does not exist"),
        ('extends = "extending.toml"', "extend that one instead"),
        ('extends = "base.toml"\n[method]\nname = "er"', r"method\.name cannot be changed by extends"),
    ],
)
def test_what_may_not_be_extended(text, reason, tiny_recipe, tmp_path):
    (tmp_path / "base.toml").write_text(tiny_recipe.read_text())
    (tmp_path / "extending.toml").write_text('extends = "base.toml"')
    (tmp_path / "mine.toml").write_text(text)
    with pytest.raises(HoldfastError, match=reason):
        read_recipe(str(tmp_path / "mine.toml"))


def test_below_something_that_is_no_table(tiny_tables):
    with pytest.raises(HoldfastError, match=r"setting seed\.a\.b: seed is not a table"):
        with_overrides(tiny_tables, ["seed.a.b=3"])


@pytest.mark.parametrize("setting", ["method.name=[1]", "method.name=3", "method.name={a = 1}", "method=er"])
@pytest.mark.parametrize("methods", [3, {"er": 3}])
def test_nonsense_is_left_for_the_check_to_refuse(setting, methods, tiny_tables):
    found = with_overrides({**tiny_tables, "methods": methods}, [setting])
    with pytest.raises(HoldfastError, match=r"^method"):
        check_recipe(found)
