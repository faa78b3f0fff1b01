"""``holdfast check-history``: the newest of several models on the gallery of every earlier one."""

from pathlib import Path
from typing import Any

import typer

from holdfast.cli.check_output import (
    HTML_OPTION,
    MARKDOWN_OPTION,
    MAX_LOSS_OPTION,
    SCORE_OPTION,
    refusal,
    refuse_output,
    show_result,
)
from holdfast.cli.options import JSON_OPTION, QUIET_OPTION
from holdfast.cli.progress import StageProgress
from holdfast.cli.verdict_exit import exit_on_failure
from holdfast.core.errors import HoldfastError


def check_history(
    run: Path | None = typer.Argument(None, metavar="RUN", help="A run folder."),
    model: list[str] = typer.Option(
        [], "--model", metavar="QUERIES,GALLERY", help="Instead of RUN: files of one model, oldest first; give several."
    ),
    max_loss: float | None = MAX_LOSS_OPTION,
    score: str | None = SCORE_OPTION,
    protocol: str = typer.Option("instance", "--protocol", help="instance, or template: one mean per class."),
    html: Path | None = HTML_OPTION,
    markdown: bool = MARKDOWN_OPTION,
    json: bool = JSON_OPTION,
    quiet: bool = QUIET_OPTION,
) -> None:
    """Check the newest of several models on the gallery of every earlier one.

    Each model's queries search the galleries of all models before it, and are compared with keeping the old model. All
    files need labels.

    Exit status: 0 if the newest model loses at most --max-loss on every earlier gallery, by the whole interval; 1 if it
    loses more or it is not shown; 2 bad input; 3 not judged, because there are no labels.

    Example: holdfast check-history runs/mine
    """
    with exit_on_failure("check", json=json and not markdown, refuse=refusal(markdown and not json)):
        refuse_output(html, markdown=markdown, json=json)
        if (run is None) == (not model):
            raise HoldfastError("give a run folder, or --model for each model, twice or more")
        from holdfast.checks import check_history as check_models

        options: dict[str, Any] = {"max_loss": max_loss, "score": score, "protocol": protocol}
        with StageProgress("check", quiet=quiet or json or markdown) as progress:
            if run is None:
                result = check_models([_model_files(text) for text in model], **options, progress=progress)
            else:
                from holdfast.train.evaluation import run_models

                result = check_models(*run_models(run), **options, progress=progress)
        show_result(result, html, markdown=markdown, json=json)


def _model_files(text: str) -> tuple[str, str]:
    parts = text.split(",")
    if len(parts) != 2 or not all(parts):
        raise HoldfastError(f"--model {text!r}: write it as QUERIES,GALLERY")
    return parts[0], parts[1]
