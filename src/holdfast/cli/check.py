"""``holdfast check``: may this model go live on the old gallery?"""

import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from holdfast.cli.check_sources import (
    ID_OPTION,
    LABEL_OPTION,
    SAMPLE_OPTION,
    TABLE_OPTION,
    THROUGH_OPTION,
    VECTOR_OPTION,
    carried_through,
    gallery_source,
)
from holdfast.cli.run import DEVICE_OPTION, QUIET_OPTION
from holdfast.cli.show import JSON_OPTION, print_json

if TYPE_CHECKING:
    from holdfast.checking import CheckResult, HistoryResult

_BAD_INPUT = 2


def check(
    run: Path | None = typer.Argument(None, help="A run folder: judge its whole history."),
    gallery: str | None = typer.Option(None, "--gallery", help="The old model's gallery as it is stored: file or URL."),
    queries_old: Path | None = typer.Option(None, "--queries-old", help="Queries embedded by the old model."),
    queries_new: Path | None = typer.Option(None, "--queries-new", help="The same queries by the new model."),
    gallery_new: Path | None = typer.Option(None, "--gallery-new", help="The gallery by the new model: the ceiling."),
    model: list[str] = typer.Option(
        [], "--model", help="QUERIES,GALLERY of one model, oldest first; twice or more: a history."
    ),
    relevance: Path | None = typer.Option(
        None, "--relevance", help="CSV, TSV or parquet of query id, gallery id[, grade]; takes the place of classes."
    ),
    score: str = typer.Option("top1", "--score", help="top1, recall@K, mAP, auc or tar@far=F."),
    protocol: str = typer.Option("instance", "--protocol", help="instance, or template: one mean per class."),
    confidence: float = typer.Option(0.95, "--confidence", help="Of the two-sided intervals."),
    min_gain: float = typer.Option(0.0, "--min-gain", help="As a fraction of 1; -0.01: at most a point worse."),
    cluster_by_class: bool = typer.Option(False, "--cluster-by-class", help="Draw whole classes of queries."),
    far: float = typer.Option(0.01, "--far", help="The false-accept rate of the old threshold."),
    threshold: float | None = typer.Option(None, "--threshold", help="The old score threshold, if there is one."),
    pairs: int = typer.Option(6000, "--pairs", help="Pairs drawn for auc and tar."),
    resamples: int = typer.Option(4000, "--resamples", help="Resamples for the intervals."),
    seed: int = typer.Option(0, "--seed", help="Of the resamples."),
    table: str | None = TABLE_OPTION,
    id_: str = ID_OPTION,
    vector: str = VECTOR_OPTION,
    label: str | None = LABEL_OPTION,
    sample: int | None = SAMPLE_OPTION,
    through: Path | None = THROUGH_OPTION,
    html: Path | None = typer.Option(None, "--html", help="Write one self-contained page to this file."),
    markdown: bool = typer.Option(False, "--markdown", help="Print Markdown for a pull-request comment."),
    device: str = DEVICE_OPTION,
    quiet: bool = QUIET_OPTION,
    json: bool = JSON_OPTION,
) -> None:
    """Say, with evidence, whether a new model may take over.

    It may where its queries can be used on the old model's gallery as it is. Features come as .npz (arrays features,
    labels, ids), .npy (NAME.labels.npy beside it), .parquet (columns of those names) or a folder of a feature store
    (RUN/features/01). Ids are optional; with them queries are paired by id. The gallery may also be a store that is
    sampled in place: postgresql://..., Qdrant's http(s)://... or qdrant:FOLDER.

    Exit status: 0 compatible, 1 not shown or incompatible, 2 could not be judged.
    """
    from holdfast.errors import HoldfastError

    given: dict[str, Any] = {
        "score": score,
        "protocol": protocol,
        "confidence": confidence,
        "min_gain": min_gain,
        "cluster_by_class": cluster_by_class,
        "resamples": resamples,
        "seed": seed,
    }
    pair: dict[str, Any] = {"relevance": relevance, "far": far, "threshold": threshold, "pairs": pairs}
    try:
        if json and markdown:
            raise HoldfastError("--json and --markdown both print to stdout; choose one")
        stored: Any = gallery_source(gallery, table, id_, vector, label, sample, seed)
        if through is not None and (stored is None or queries_old is None):
            raise HoldfastError("--through goes with --gallery and --queries-old")
        old: Any = queries_old
        if through is not None:
            stored, old = carried_through(through, stored, old)
        files = (stored, old, queries_new, gallery_new)
        result = _judge(run, model, files, given, pair, device, quiet or json or markdown)
        record = result.as_json()
        if html is not None:
            from holdfast.reports import write_check

            write_check(record, html)
    except (HoldfastError, OSError) as error:
        _say_why_not(str(error), json=json, markdown=markdown)
        typer.echo(f"holdfast: {error}", err=True)
        raise typer.Exit(_BAD_INPUT) from None
    except Exception as error:  # Python's own status for a crash is 1, which a pipeline would read as a verdict
        _say_why_not(f"the check itself failed ({type(error).__name__}: {error})", json=json, markdown=markdown)
        traceback.print_exc()
        raise typer.Exit(_BAD_INPUT) from None
    if json:
        print_json(record)
    elif markdown:
        from holdfast.reports import check_markdown

        typer.echo(check_markdown(record), nl=False)
    else:
        from holdfast.cli.check_text import print_check

        print_check(record, html)
    raise typer.Exit(result.exit_code)


def _say_why_not(reason: str, *, json: bool, markdown: bool) -> None:
    """On stdout, for who reads it there: a pipeline, or a pull request."""
    if json and not markdown:
        print_json({"verdict": "could not be judged", "reason": reason, "exit_code": _BAD_INPUT})
    elif markdown and not json:
        from holdfast.reports import refusal_markdown

        typer.echo(refusal_markdown(reason), nl=False)


def _judge(
    run: Path | None,
    model: list[str],
    files: tuple[Any, ...],
    given: dict[str, Any],
    pair: dict[str, Any],
    device: str,
    quiet: bool,
) -> "CheckResult | HistoryResult":
    from holdfast.checking import check, check_history
    from holdfast.cli.check_progress import CheckProgress
    from holdfast.devices import resolve_device
    from holdfast.errors import HoldfastError

    ways = [run is not None, bool(model), any(file is not None for file in files)]
    if sum(ways) != 1:
        raise HoldfastError(
            "give a run folder, or --model twice or more, or --gallery, --queries-old and --queries-new"
        )
    with CheckProgress(quiet=quiet) as progress:
        settings = {**given, "device": resolve_device(device), "progress": progress}
        if ways[2]:
            gallery, old, new, gallery_new = files
            if gallery is None or old is None or new is None:
                raise HoldfastError("--gallery, --queries-old and --queries-new are needed together")
            return check(gallery, old, new, gallery_new, **pair, **settings)
        if pair["relevance"] is not None:
            raise HoldfastError("--relevance judges one pair of models; a history needs labels")
        return check_history(run if run is not None else [_halves(text) for text in model], **settings)


def _halves(text: str) -> tuple[str, str]:
    from holdfast.errors import HoldfastError

    parts = text.split(",")
    if len(parts) != 2 or not all(parts):
        raise HoldfastError(f"--model {text!r}: wanted QUERIES,GALLERY")
    return parts[0], parts[1]
