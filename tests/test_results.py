"""Committed results are whole, and their scores follow from their matrices."""

import json
from pathlib import Path

import numpy as np
import pytest

from holdfast.metrics import compatibility_summary
from holdfast.recipes.schema import check_recipe

RUNS = sorted((Path(__file__).parents[1] / "results").glob("cifar100-10/pilot/*.json"))


def test_there_are_some():
    assert RUNS


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_a_run(path):
    record = json.loads(path.read_text(encoding="utf-8"))
    assert path.stem == f"{record['method']}-t{record['tasks']}-s{record['seed']}"
    assert record["command"].startswith("holdfast run ")
    assert record["environment"]["commit"]
    assert record["environment"]["gpu"]
    assert check_recipe(record["recipe"]).method == record["method"]
    assert record["data"]["open_set"]
    for protocol in ("template", "instance"):
        scores = record["protocols"][protocol]
        found = compatibility_summary(np.array(scores["matrix"], dtype=float))
        for name in ("AC", "AA", "ACA"):
            assert scores[name] == pytest.approx(found[name])


def test_the_pilot_is_reproduced():
    """d-Simplex-HOC on real CIFAR, 7 tasks, lambda 0.3: AC of at least 0.8 and AA of at least 44 % by template."""
    record = json.loads(next(path for path in RUNS if path.stem == "simplex_hoc-t7-s0").read_text(encoding="utf-8"))
    assert record["recipe"]["method"]["lambda"] == 0.3
    assert record["recipe"]["train"]["epochs"] == 40
    assert record["protocols"]["template"]["AC"] >= 0.8
    assert record["protocols"]["template"]["AA"] >= 0.44


def test_the_demo_over_seeds_is_what_the_readme_says():
    root = Path(__file__).parents[1]
    scores = {
        method: [
            json.loads(path.read_text(encoding="utf-8"))["protocols"]["template"]["AC"]
            for path in sorted((root / "results" / "demo").glob(f"{method}-t6-s*.json"))
        ]
        for method in ("er", "simplex_hoc")
    }
    readme = " ".join((root / "README.md").read_text(encoding="utf-8").split())
    for name, found in zip(("ER", "d-Simplex-HOC"), scores.values()):
        assert len(found) == 5
        assert f"{np.mean(found):.2f}" in readme, name
        assert f"({min(found):.2f} to {max(found):.2f})" in readme, name
