"""The code of docs/logging.md, executed."""

import re
from pathlib import Path

import pytest

import holdfast
from holdfast.train.experiments.execute import run_recipe

PAGE = (Path(__file__).parents[1] / "docs" / "logging.md").read_text(encoding="utf-8")
SMALL = ["scenario.initial=2", "scenario.tasks=2", "backbone.width=4", "train.epochs=1"]
SMALL += ["data.train.train_classes=4", "data.train.per_class_train=4"]
SMALL += [f"data.{split}.test_classes=2" for split in ("train", "query", "gallery")]
SMALL += [f"data.{split}.per_class_{split}=4" for split in ("query", "gallery")]


def test_a_function_that_sees_every_event(tmp_path, monkeypatch):
    """As it stands there, but for the size of the run and the writer, which keeps what it is given."""
    (code,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    written = []

    class Writer:
        def __init__(self, folder):
            self.folder = folder

        def add_scalar(self, name, value, step):
            written.append((name, value, step))

        def close(self):
            written.append("closed")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(holdfast, "run_recipe", lambda *words, **options: run_recipe(*words, SMALL, **options))
    line = "from torch.utils.tensorboard import SummaryWriter"
    assert line in code
    names = {"SummaryWriter": Writer}
    exec(compile(code.replace(line, ""), "logging.md", "exec"), names)
    *scalars, last = written
    assert last == "closed"
    assert {name.partition("/")[0] for name, _, _ in scalars} == {"task 1", "task 2"}
    assert all(value == pytest.approx(value) and step > 0 for _, value, step in scalars)
    assert names["metrics"]["protocols"].keys() == {"template", "instance"}
    assert (tmp_path / "runs" / "logged" / "metrics.json").is_file()
