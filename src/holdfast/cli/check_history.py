"""``holdfast check-history``: the newest of several models on the gallery of every earlier one."""

from pathlib import Path
from typing import Any

import typer

from holdfast.cli.check_output import (
    MAX_LOSS_OPTION,
    PAGE_OPTION,
    SCORE_OPTION,
    judging,
    show_result,
)
from holdfast.cli.options import JSON_OPTION
from holdfast.core.errors import HoldfastError


def check_history(
    run: Path | None = typer.Argument(None, metavar="RUN", help="A run folder."),
    model: list[str] = typer.Option(
        [], "--model", metavar="QUERIES,GALLERY", help="Instead of RUN: files of one model, oldest first; give several."
    ),
    max_loss: float | None = MAX_LOSS_OPTION,
    score: str | None = SCORE_OPTION,
    page: list[Path] = PAGE_OPTION,
    json: bool = JSON_OPTION,
) -> None:
    """Check the newest of several models on the gallery of every earlier one.

    Each model's queries search the galleries of all models before it, and are compared with keeping the old model. All
    files need labels.

    Exit status: 0 if the newest model loses at most --max-loss on every earlier gallery, by the whole interval; 1 if it
    loses more or it is not shown; 2 bad input; 3 not judged, because there are no labels.

    Example: holdfast check-history runs/mine
    """
    with judging("check-history", page, json=json) as progress:
        from holdfast.reports import check_report

        if (run is None) == (not model):
            raise HoldfastError("give a run folder, or --model for each model, twice or more")
        from holdfast.checks import check_history as check_models

        options: dict[str, Any] = {"max_loss": max_loss, "score": score, "progress": progress}
        if run is None:
            result = check_models([_model_files(text) for text in model], **options)
        else:
            from holdfast.train.evaluation import run_models

            result = check_models(*run_models(run), **options)
    show_result(result, check_report(result.as_json()), page, json=json)


def _model_files(text: str) -> tuple[str, str]:
    parts = text.split(",")
    if len(parts) != 2 or not all(parts):
        raise HoldfastError(f"--model {text!r}: write it as QUERIES,GALLERY")
    return parts[0], parts[1]
