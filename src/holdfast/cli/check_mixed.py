"""``holdfast check-mixed``: do people find more in a gallery of several versions than by keeping the old model?"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from holdfast.cli.check_output import (
    MAX_LOSS_OPTION,
    MIN_AGREEMENT_OPTION,
    PAGE_OPTION,
    RELEVANCE_OPTION,
    SCORE_OPTION,
    device_of_environment,
    judging,
    show_result,
)
from holdfast.cli.options import JSON_OPTION
from holdfast.core.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.bridges import Bridge


def check_mixed(
    part: list[str] = typer.Option(
        ..., "--part", metavar="FILE[,BRIDGE]", help="The vectors of one version, oldest first."
    ),
    queries_new: Path = typer.Option(..., "--queries-new", help="Queries embedded by the newest model."),
    gallery_new: Path = typer.Option(..., "--gallery-new", help="All items of all parts by the newest model."),
    queries_old: Path | None = typer.Option(None, "--queries-old", help="The same queries by the old model."),
    gallery_old: Path | None = typer.Option(None, "--gallery-old", help="All items by the old model: keeping it."),
    relevance: Path | None = RELEVANCE_OPTION,
    max_loss: float | None = MAX_LOSS_OPTION,
    score: str | None = SCORE_OPTION,
    min_exposure: float | None = typer.Option(
        None, "--min-exposure", help="Smallest exposure ratio of every version, such as 0.8."
    ),
    min_agreement: float | None = MIN_AGREEMENT_OPTION,
    page: list[Path] = PAGE_OPTION,
    json: bool = JSON_OPTION,
) -> None:
    """Check a gallery whose items were embedded by several models.

    It is compared with keeping the old model (--gallery-old and --queries-old), and with a full re-embedding: accuracy,
    and how often the items of each version are shown. Answers need judgements: labels in the files, or --relevance.

    Exit status: 0 if at most --max-loss is lost and all that is asked for is reached, by the whole intervals; 1 if not;
    2 bad input; 3 not judged. Without judgements only --min-agreement can give 0.

    Example: holdfast check-mixed --part old.npz,bridges/2-to-1 --part new.npz --queries-new q.npz --gallery-new all.npz
    """
    with judging("check-mixed", page, json=json) as progress:
        from holdfast.checks import check_mixed as check_parts
        from holdfast.reports import check_report

        result = check_parts(
            [_part(text) for text in part],
            queries_new,
            gallery_new,
            gallery_old=gallery_old,
            queries_old=queries_old,
            relevance=relevance,
            score=score,
            max_loss=max_loss,
            min_exposure=min_exposure,
            min_agreement=min_agreement,
            device=device_of_environment(),
            progress=progress,
        )
    show_result(result, check_report(result.as_json()), page, json=json)


def _part(text: str) -> tuple[str, "Bridge | None", Any]:
    from holdfast.bridges import Bridge

    file, comma, folder = text.partition(",")
    if not file or (comma and not folder):
        raise HoldfastError(f"--part {text!r}: write it as FILE or FILE,BRIDGE")
    bridge = Bridge.load(folder) if folder else None
    return file, bridge, None if bridge is None else bridge.scale
