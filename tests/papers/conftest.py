"""Results that were never run, for pages to be made of: the shape of a record with scores drawn at random."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from holdfast.cli import app as holdfast_app
from holdfast.core.storage import without_nan
from holdfast.metrics import compatibility_summary
from papers.stationary.__main__ import app


def made_up_bridged(aa: float, *, maps: bool = False) -> dict:
    """Scores of rotated queries: AA of ``aa``, two points more by template with a rotation, five less by instance."""
    found = {"AC": 1.0, "AA": aa, "ACA": aa, "self": aa, "cross": aa}
    both = {"template": found, "instance": {**found, "AA": aa - 0.05}}
    rotated = {"template": {**found, "AA": aa + 0.02}, "instance": both["instance"]}
    return {
        "plain": both,
        "rotation_gallery": rotated,
        "rotation_other": rotated,
        "draws": {"rotation_gallery": [{**found, "AA": aa + 0.01 * draw} for draw in range(5)]},
        "counts": dict.fromkeys(("100", "200", "500", "1000", "2000", "5000"), found),
        "without_pairs": {"plain": both, "rotation_gallery": both},
        "reembedded": both,
        "second_test": dict.fromkeys(("plain", "rotation_gallery", "rotation_other"), both),
        **({"map_and_rotation": both} if maps else {}),
    }


def write_fake(
    run, root: Path, *, seed: int = 0, minutes: float = 2.0, rising: float = 0.01, commit: str | None = "0123456789ab"
) -> dict:
    rng = np.random.default_rng([seed, run.seed, run.tasks])
    protocols = {}
    for protocol in ("template", "instance"):
        own = np.linspace(0.3, 0.57, run.tasks)
        matrix = np.tril(own[None, :] + rising + rng.normal(0, 0.012, (run.tasks, run.tasks)))
        np.fill_diagonal(matrix, own)
        matrix[np.triu_indices(run.tasks, 1)] = np.nan
        protocols[protocol] = {**compatibility_summary(matrix), "matrix": matrix.tolist()}
    record = {
        "method": run.method,
        "tasks": run.tasks,
        "seed": run.seed,
        "command": run.command,
        "minutes": 8 * minutes,
        "gpu_minutes": minutes,
        "environment": {"gpu": "NVIDIA H200", "commit": commit},
        "recipe": json.loads(json.dumps(dict(run.recipe.tables))),
        "protocols": protocols,
    }
    if "bridged" in run.measures:
        record["bridged"] = made_up_bridged(0.4)
    if "readings" in run.measures:
        record["readings"] = {"simplex": {"rotation_gallery": {"template": {"AC": 1.0, "AA": 0.4, "ACA": 0.4}}}}
    path = root / run.path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(without_nan(record)))
    return without_nan(record)


@pytest.fixture
def fake():
    return write_fake


@pytest.fixture
def bridged():
    return made_up_bridged


@pytest.fixture
def study() -> Callable[..., str]:
    """Run a command of the study, or of holdfast, in this process and return its stdout. An exception is passed on."""

    def call(*words: object, status: int = 0) -> str:
        result = CliRunner(env={"COLUMNS": "80"}).invoke(
            app if words[0] in ("reproduce", "theory") else holdfast_app, [str(word) for word in words]
        )
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == status, result.output
        return result.stdout

    return call


@pytest.fixture
def study_json(study: Callable[..., str]) -> Callable[..., Any]:
    """Run a command with ``--json`` and return what it printed, read strictly."""

    def call(*words: object) -> Any:
        return json.loads(study(*words, "--json"), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))

    return call
