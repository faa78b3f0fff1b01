"""Recipes for own images: what they may say."""

import copy
import re
import tomllib
from pathlib import Path

import pytest

from holdfast.core.errors import HoldfastError
from holdfast.train.versions import VersionSettings
from holdfast.train.versions.next_settings import version_tables
from holdfast.train.versions.version_defaults import default_settings

DEFAULTS = default_settings(vectors=False).tables()
PAGE = Path(__file__).parents[3] / "docs" / "own-data.md"
(ON_THE_PAGE,) = re.findall(r"^```toml\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def taken(tables):
    """Whether the check takes the tables."""
    try:
        VersionSettings(**tables, vectors=False)
    except HoldfastError:
        return False
    return True


def test_the_defaults_and_the_page():
    assert taken(DEFAULTS)
    assert VersionSettings(**DEFAULTS, vectors=False).tables() == DEFAULTS
    assert taken(tomllib.loads(ON_THE_PAGE))


@pytest.mark.parametrize(
    ("section", "key", "value", "valid"),
    [
        ("data", "size", 64, True),
        ("data", "size", 0, False),
        ("data", "name", "folder", False),
        ("data", "colour", "sepia", False),
        ("held_out", "share", 0.1, True),
        ("held_out", "share", 1.0, False),
        ("buffer", "per_class", 0, True),
        ("buffer", "per_class", -1, False),
        ("scenario", "name", "cl2r", False),
        ("train", "seed", 1, False),
    ],
)
def test_single_keys(section, key, value, valid):
    tables = copy.deepcopy(DEFAULTS)
    tables.setdefault(section, {})[key] = value
    assert taken(tables) is valid


def test_a_recipe_of_a_run_says_how_and_not_on_what(tiny_tables):
    found = version_tables(tiny_tables)
    assert found["buffer"] == {"per_class": 2}
    assert found["data"] == {}  # drawn characters are no folder
    assert found["train"] == tiny_tables["train"]
    assert taken(found)
    tiny_tables["data"]["train"] = {"name": "folder", "split": "train", "path": "x", "size": 20}
    assert version_tables(tiny_tables)["data"] == {"size": 20}
    tiny_tables["scenario"]["name"] = "iam_cl2r"
    with pytest.raises(HoldfastError, match="only a run of cl2r"):
        version_tables(tiny_tables)
