"""What docs/adopt.md tells a reader to type exists."""

import re
import tomllib
from pathlib import Path

from typer.main import get_command

from holdfast.cli import app
from holdfast.train.methods import METHODS
from holdfast.train.versions import Adopted
from holdfast.train.versions.adoption_result import WAYS

PAGE = (Path(__file__).parents[3] / "docs" / "adopt.md").read_text(encoding="utf-8")


def test_verbs_and_options_exist():
    verbs = dict(get_command(app).commands)  # type: ignore[attr-defined]
    groups = {f"gallery {name}": verb for name, verb in verbs["gallery"].commands.items()}
    named = set(re.findall(r"holdfast (gallery \w+|\w+) ", PAGE)) & ({"adopt", "run", "check"} | set(groups))
    assert {"adopt", "run", "check", "gallery attach", "gallery register", "gallery search"} <= named
    known = {name for verb in (*verbs.values(), *groups.values()) for option in verb.params for name in option.opts}
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", PAGE)) <= known


def test_ways_methods_and_recipe():
    assert set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)) == set(WAYS)
    (recipe,) = re.findall(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    tables = tomllib.loads(recipe)
    assert tables["method"]["name"] in METHODS
    assert tables["adopted"] == {"folder": "v0"}
    assert callable(Adopted.reference)
