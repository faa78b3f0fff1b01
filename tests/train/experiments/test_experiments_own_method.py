"""The method of docs/own-method.md, run as it stands there, and what is refused."""

import json
import re
import sys
from pathlib import Path

import pytest

from holdfast.core.errors import HoldfastError
from holdfast.core.run_folder import FolderRefusedError, RunFolder
from holdfast.train.encoders import Encoder
from holdfast.train.experiments.execute import execute
from holdfast.train.experiments.load import read_recipe
from holdfast.train.experiments.pretrain import check_pretrain_recipe, pretrain
from holdfast.train.experiments.schema import check_recipe
from holdfast.train.versions import VersionSettings
from papers.sweeps.plan import plan

PAGE = (Path(__file__).parents[3] / "docs" / "own-method.md").read_text(encoding="utf-8")
NAME = "relations:Relations"


@pytest.fixture
def at_home(tmp_path, monkeypatch):
    (code,) = re.findall(r"^```python\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)
    more = "\n\nclass Half(Method):\n    def begin(self, task, dim):\n        pass\n\n\nnumber = 3\n"
    (tmp_path / "relations.py").write_text(code + more, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    sys.modules.pop("relations", None)


def refusal(tables, check=check_recipe):
    with pytest.raises(HoldfastError) as error:
        check(tables)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_run_with_it(at_home, tiny_tables):
    tiny_tables["method"] = {"name": NAME, "weight": 5.0}
    recipe = check_recipe(tiny_tables)
    assert recipe.short_name.startswith("Relations-")
    folder = RunFolder(at_home / "run")
    metrics = execute(recipe, folder, device="cpu")
    assert metrics["method"] == NAME
    assert len(metrics["protocols"]["template"]["matrix"]) == 3
    assert check_recipe(read_recipe(str(folder.recipe))).tables == recipe.tables
    logged = [json.loads(line) for line in (at_home / "run" / "log.jsonl").read_text().splitlines()]
    assert any("relations" in json.dumps(line) for line in logged)


def test_a_model_pretrained_with_it(at_home, pretrain_recipe):
    raw = read_recipe(str(pretrain_recipe), [f"method.name={NAME}"])
    raw["method"] = {"name": NAME, "slots": 20, "weight": 5.0}
    recipe, folder = check_pretrain_recipe(raw), RunFolder(at_home / "model")
    assert pretrain(recipe, folder, device="cpu")["head"] == "simplex"
    assert pretrain(recipe, folder, device="cpu")["classes"] == 4  # finished: read, not repeated
    assert Encoder.from_pretrained(folder.path).dim == 19


@pytest.mark.parametrize(
    ("own", "foreign"),
    [
        ('"simplex_hoc"', '"foreign:code"'),
        ('"small"', '"foreign:code"'),
        ("[train]", '[methods."foreign:code"]\n[train]'),
    ],
)
def test_pretraining_imports_nothing_that_only_a_folder_names(at_home, pretrain_recipe, own, foreign):
    folder = RunFolder(at_home / "model")
    folder.path.mkdir()
    text = pretrain_recipe.read_text()
    assert own in text
    folder.recipe.write_text(text.replace(own, foreign))
    (at_home / "foreign.py").write_text('raise SystemExit("imported")')
    with pytest.raises(HoldfastError, match=r"names the code foreign:code, which .* does not; choose another"):
        pretrain(check_pretrain_recipe(read_recipe(str(pretrain_recipe))), folder, device="cpu")


@pytest.mark.parametrize(("own", "foreign"), [('"simplex_hoc"', '"foreign:code"'), ('"small"', '"foreign:code"')])
def test_a_run_imports_nothing_that_only_its_folder_names(at_home, tiny_recipe, own, foreign):
    folder = RunFolder(at_home / "run")
    folder.path.mkdir()
    text = tiny_recipe.read_text()
    assert own in text
    folder.recipe.write_text(text.replace(own, foreign))
    (at_home / "foreign.py").write_text('raise SystemExit("imported")')
    with pytest.raises(FolderRefusedError, match="names the code foreign:code, which the recipe to run does not"):
        execute(check_recipe(read_recipe(str(tiny_recipe))), folder, device="cpu", resume=True)


def test_beside_others_in_a_sweep(at_home, tiny_recipe):
    runs = plan([str(tiny_recipe)], methods=["er", NAME], seeds=[0, 1])
    assert [run.name for run in runs][2:] == ["tiny-Relations-t3-s0", "tiny-Relations-t3-s1"]


@pytest.mark.parametrize(
    ("method", "reason"),
    [
        ({"name": NAME, "wieght": 1.0}, "method.wieght: unknown key; known here: slots, weight"),
        ({"name": "relations:Nobody"}, "method.name: method relations:Nobody: Nobody is not there in relations"),
        ({"name": "relations:number"}, "number is int, not a function"),
        ({"name": "relations:DSimplex"}, "it must be a class derived from holdfast.Method"),
        ({"name": "relations:Half"}, "it must define loss"),
        ({"name": "nowhere_at_all:Mine"}, "nowhere_at_all does not import (ModuleNotFoundError"),
        ({"name": "mine"}, "; or your own: package.module:Class"),
    ],
)
def test_what_is_refused(at_home, tiny_tables, method, reason):
    tiny_tables["method"] = method
    assert reason in refusal(tiny_tables)


def test_a_version_may_not_name_it(at_home):
    said = refusal({"method": {"name": NAME}}, lambda tables: VersionSettings(**tables))
    assert f"unknown method '{NAME}'" in said
    assert "relations" not in sys.modules
