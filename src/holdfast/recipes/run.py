"""Run a recipe from Python as ``holdfast run`` does."""

import html
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast.evaluation.shown_matrix import matrix_html
from holdfast.recipes.assemble import SharedData
from holdfast.recipes.execute import execute
from holdfast.recipes.load import read_recipe
from holdfast.recipes.schema import check_recipe
from holdfast.run_folder import RunFolder
from holdfast.wording import counted


class RunMetrics(dict[str, Any]):
    """What ``metrics.json`` says, as a dict; a notebook shows the matrix under each protocol."""

    def __repr__(self) -> str:
        scores = "; ".join(
            f"{protocol} AC {_shown(found['AC'])} AA {_shown(found['AA'])} ACA {_shown(found['ACA'])}"
            for protocol, found in self["protocols"].items()
        )
        return f"<{self['method']}, {counted(len(self['tasks']), 'model')}: {scores}>"

    def _repr_html_(self) -> str:
        parts = [f"<p><b>{html.escape(str(self['method']))}</b>, {counted(len(self['tasks']), 'model')}</p>"]
        for protocol, scores in self["protocols"].items():
            parts.append(f"<p>{html.escape(protocol)}</p>{matrix_html(scores['matrix'])}")
        return "".join(parts)


def _shown(score: float | None) -> str:
    return "–" if score is None else f"{score:.3f}"


def run_recipe(
    recipe: str | Path,
    out: str | Path,
    settings: Sequence[str] = (),
    *,
    data: str | Path | None = None,
    models: str | Path | None = None,
    device: str = "auto",
    resume: bool = False,
    sinks: Sequence[str] = (),
) -> RunMetrics:
    """Train, evaluate and report a recipe (a TOML file or a built-in name) into the folder ``out``.

    settings: what is changed in it, such as "train.epochs=10". data, models: where data sets and trained models lie.
    resume: go on with the run in the folder. sinks: what to log to beside it (tensorboard, wandb, mlflow).
    """
    checked = check_recipe(read_recipe(str(recipe), settings))
    shared = SharedData(None if data is None else Path(data), None if models is None else Path(models))
    return RunMetrics(execute(checked, RunFolder(out), shared=shared, device=device, resume=resume, sinks=sinks))
