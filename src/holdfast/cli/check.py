"""``holdfast check``: do people find more with a new model's queries on the old model's index?"""

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
from holdfast.cli.options import ID_OPTION, JSON_OPTION, LABEL_OPTION, QUIET_OPTION, VECTOR_OPTION, refuse_given
from holdfast.cli.progress import StageProgress
from holdfast.cli.verdict_exit import exit_on_failure
from holdfast.core.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.vectors import FeatureSet

TABLE_OPTION = typer.Option(None, "--table", help="If --gallery is a URL: the table or collection.")
SAMPLE_OPTION = typer.Option(None, "--sample", help="If --gallery is a URL: take so many vectors, at random.")


def check(
    context: typer.Context,
    gallery: str = typer.Option(..., "--gallery", help="The old model's stored gallery: file or URL."),
    queries_old: Path | None = typer.Option(None, "--queries-old", help="Queries embedded by the old model."),
    queries_new: Path | None = typer.Option(None, "--queries-new", help="The same queries by the new model."),
    relevance: Path | None = RELEVANCE_OPTION,
    known_items: Path | None = typer.Option(
        None, "--known-items", help="Instead of query files: .npz with old, new and item, the right item's id."
    ),
    bridge: Path | None = typer.Option(
        None, "--bridge", help="A bridge's folder: the new queries search the old gallery through it."
    ),
    gallery_new: Path | None = typer.Option(
        None, "--gallery-new", help="The gallery by the new model: what re-embedding would add."
    ),
    max_loss: float | None = MAX_LOSS_OPTION,
    score: str = SCORE_OPTION,
    html: Path | None = HTML_OPTION,
    markdown: bool = MARKDOWN_OPTION,
    json: bool = JSON_OPTION,
    leave_one_out: bool = typer.Option(
        False, "--leave-one-out", help="Queries are items of the gallery, by id, and do not find themselves."
    ),
    min_agreement: float | None = MIN_AGREEMENT_OPTION,
    confidence: float = typer.Option(0.95, "--confidence", help="Level of the two-sided intervals."),
    threshold: float | None = typer.Option(None, "--threshold", help="The score threshold in use, if any."),
    table: str | None = TABLE_OPTION,
    id_: str | None = ID_OPTION,
    vector: str | None = VECTOR_OPTION,
    label: str | None = LABEL_OPTION,
    sample: int | None = SAMPLE_OPTION,
    device: str = typer.Option("cpu", "--device", help="cpu, or cuda or cuda:N, which need torch."),
    quiet: bool = QUIET_OPTION,
) -> None:
    """Say, with evidence, whether a new model's queries find more than the old model.

    They search the unchanged index (gallery) of the old model, and are compared with keeping the old model. That takes
    judgements: labels in all files, --relevance, or --known-items, a stand-in for real queries. Without them nothing is
    judged: the output then shows how much of a re-embedding (--gallery-new) is shown.

    Features are .npz (arrays features, labels, ids), .npy (NAME.labels.npy beside it), .parquet (columns of those
    names), a folder of shards that holdfast embed wrote, or one model's features of a run (RUN/features/01). Ids are
    optional; with them queries are paired by id. The gallery may also be a store that is sampled in place:
    postgresql://..., Qdrant's http(s)://... or qdrant:FOLDER.

    Exit status: 0 if at most --max-loss is lost, by the whole interval; 1 if more is lost or it is not shown; 2 bad
    input; 3 not judged, because there are no judgements. With --min-agreement, 0 and 1 say whether it is reached.

    Example: holdfast check --gallery index.npz --queries-old old.npz --queries-new new.npz --relevance qrels.tsv
    """
    with exit_on_failure("check", json=json and not markdown, refuse=refusal(markdown and not json)):
        refuse_output(html, markdown=markdown, json=json)
        columns = (id_, vector, label)
        stored = _gallery_source(context, gallery, table, columns, sample)
        from holdfast.bridges import Bridge
        from holdfast.checks import check as check_queries

        old, new, items = _queries(queries_old, queries_new, known_items)
        if not _is_store(gallery):
            old, new = (_named_columns(source, columns) for source in (old, new))
        with StageProgress("check", quiet=quiet or json or markdown) as progress:
            result = check_queries(
                stored,
                old,
                new,
                gallery_new if _is_store(gallery) else _named_columns(gallery_new, columns),
                known_items=items,
                bridge=None if bridge is None else Bridge.load(bridge),
                relevance=relevance,
                leave_one_out=leave_one_out,
                score=score,
                max_loss=max_loss,
                min_agreement=min_agreement,
                confidence=confidence,
                threshold=threshold,
                device=_device(device),
                progress=progress,
            )
        show_result(result, html, markdown=markdown, json=json)


def _queries(old: Path | None, new: Path | None, known: Path | None) -> tuple[Any, Any, Any]:
    """The queries of both models and, of known items, the right ones."""
    if known is None:
        if old is None or new is None:
            raise HoldfastError("give --queries-old and --queries-new, or --known-items")
        return old, new, None
    if old is not None or new is not None:
        raise HoldfastError("--known-items has the queries of both models; leave out --queries-old and --queries-new")
    from holdfast.checks.known_items import read_known_items

    return read_known_items(known)


def _device(name: str) -> Any:
    if name == "cpu":
        return name
    from holdfast.train.devices import resolve_device

    return resolve_device(name)


_Names = tuple[str | None, str | None, str | None]


def _is_store(gallery: str) -> bool:
    """Whether this is the URL of a store; --id, --vector and --label are then the columns of its table only."""
    return "://" in gallery or gallery.startswith("qdrant:")


def _named_columns(source: Any, columns: _Names) -> Any:
    """A file as vectors from the columns of these names; anything else, and a file without names, as it is."""
    if not isinstance(source, Path) or not any(columns):
        return source
    from holdfast.vectors.feature_files import read_features
    from holdfast.vectors.vector_tables import Columns

    return read_features(source, "gallery", Columns(*columns))


def _gallery_source(
    context: typer.Context, gallery: str, table: str | None, columns: _Names, sample: int | None
) -> "Path | FeatureSet":
    """The gallery as a file, or as a sample of the store at a URL. Options of a store are refused beside a file.

    columns: of ids, vectors and classes.
    """
    if not _is_store(gallery):
        refuse_given(context, ("table", "sample"), "needs a --gallery that is the URL of a store")
        found: Path | FeatureSet = _named_columns(Path(gallery), columns)
        return found
    from holdfast.gallery.attached import stored_sample
    from holdfast.gallery.attached.source import Address

    id_, vector, label = columns
    if table is None:
        raise HoldfastError(f"--gallery {gallery.partition(':')[0]}:...: name the table or collection with --table")
    return stored_sample(Address(gallery, table, id_ or "id", vector or "", label), sample)
