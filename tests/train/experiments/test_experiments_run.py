"""A recipe run from Python: the same as the command, shown in a notebook."""

import json
from html.parser import HTMLParser

import pytest

import holdfast
from holdfast.train.evaluation.matrix import matrix_html
from holdfast.train.experiments.execute import RunMetrics


def test_a_run_from_python_is_the_command_and_shows_its_matrices(tiny_recipe, tiny_run, tmp_path):
    found = holdfast.run_recipe(tiny_recipe, tmp_path / "run", device="cpu")
    assert found["protocols"] == json.loads((tiny_run / "metrics.json").read_text())["protocols"]
    assert json.loads(json.dumps(found)) == found
    assert repr(found).startswith(f"<simplex_hoc, 3 models: template AC {found['protocols']['template']['AC']:.3f} AA ")
    text = found._repr_html_()
    assert "<b>simplex_hoc</b>, 3 models" in text
    for protocol in ("template", "instance"):
        assert f"<p>{protocol}</p>{matrix_html(found['protocols'][protocol]['matrix'])}" in text
    again = holdfast.run_recipe(tiny_recipe, tmp_path / "run", device="cpu", resume=True)
    assert again["protocols"] == found["protocols"]
    with pytest.raises(holdfast.HoldfastError):
        holdfast.run_recipe(tiny_recipe, tmp_path / "run", ["seed=9"], device="cpu", resume=True)


def test_names_cannot_smuggle_anything_in():
    scores = {"matrix": [[0.5]], "AC": None, "AA": 0.5, "ACA": None}
    text = RunMetrics(method="<script>", tasks=[{}], protocols={"<i>": scores})._repr_html_()
    assert "instance AC – AA" in repr(RunMetrics(method="er", tasks=[{}], protocols={"instance": scores}))
    opened = []

    class Tags(HTMLParser):
        def handle_starttag(self, tag, attrs):
            opened.append(tag)

    Tags().feed(text)
    assert set(opened) == {"p", "b", "table", "tr", "th", "td"}
