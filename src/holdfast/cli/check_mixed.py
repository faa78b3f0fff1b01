"""``holdfast check-mixed``: do people find more in a gallery of several versions than by keeping the old model?"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from holdfast.cli.check_output import (
    HTML_OPTION,
    MARKDOWN_OPTION,
    MAX_LOSS_OPTION,
    MIN_AGREEMENT_OPTION,
    RELEVANCE_OPTION,
    SCORE_OPTION,
    refusal,
    refuse_output,
    show_result,
)
from holdfast.cli.options import JSON_OPTION, QUIET_OPTION
from holdfast.cli.progress import StageProgress
from holdfast.cli.verdict_exit import exit_on_failure
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
    html: Path | None = HTML_OPTION,
    markdown: bool = MARKDOWN_OPTION,
    json: bool = JSON_OPTION,
    quiet: bool = QUIET_OPTION,
) -> None:
    """Check a gallery whose items were embedded by several models.

    It is compared with keeping the old model (--gallery-old and --queries-old), and with a full re-embedding: accuracy,
    and how often the items of each version are shown. Answers need judgements: labels in the files, or --relevance.

    Exit status: 0 if at most --max-loss is lost and all that is asked for is reached, by the whole intervals; 1 if not;
    2 bad input; 3 not judged. Without judgements only --min-agreement can give 0.

    Example: holdfast check-mixed --part old.npz,bridges/2-to-1 --part new.npz --queries-new q.npz --gallery-new all.npz
    """
    with exit_on_failure("check", json=json and not markdown, refuse=refusal(markdown and not json)):
        refuse_output(html, markdown=markdown, json=json)
        from holdfast.checks import check_mixed as check_parts

        opened = [_part(text) for text in part]
        with StageProgress("check", quiet=quiet or json or markdown) as progress:
            result = check_parts(
                opened,
                queries_new,
                gallery_new,
                gallery_old=gallery_old,
                queries_old=queries_old,
                relevance=relevance,
                score=score,
                max_loss=max_loss,
                min_exposure=min_exposure,
                min_agreement=min_agreement,
                progress=progress,
            )
        show_result(result, html, markdown=markdown, json=json)


def _part(text: str) -> tuple[str, "Bridge | None", Any]:
    from holdfast.bridges import Bridge

    file, comma, folder = text.partition(",")
    if not file or (comma and not folder):
        raise HoldfastError(f"--part {text!r}: write it as FILE or FILE,BRIDGE")
    bridge = Bridge.load(folder) if folder else None
    return file, bridge, None if bridge is None else bridge.scale
