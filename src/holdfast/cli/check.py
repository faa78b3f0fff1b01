"""``holdfast check``: do people find more with a new model's queries on the old model's index?"""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from holdfast.cli.check_output import (
    KNOWN_ITEMS_OPTION,
    MAX_LOSS_OPTION,
    MIN_AGREEMENT_OPTION,
    PAGE_OPTION,
    RELEVANCE_OPTION,
    SCORE_OPTION,
    ColumnNames,
    device_of_environment,
    judging,
    load_bridge,
    named_columns,
    query_files,
    show_result,
)
from holdfast.cli.options import ID_OPTION, JSON_OPTION, LABEL_OPTION, VECTOR_OPTION
from holdfast.core.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.vectors import FeatureSet

STORE_SAMPLE = 20_000
"""Vectors that are taken from a store, at random and the same every time."""


def check(
    gallery: str = typer.Option(..., "--gallery", help="The old model's gallery: a file, or a store's URL#TABLE."),
    queries_old: Path | None = typer.Option(None, "--queries-old", help="Queries embedded by the old model."),
    queries_new: Path | None = typer.Option(None, "--queries-new", help="The same queries by the new model."),
    relevance: Path | None = RELEVANCE_OPTION,
    known_items: Path | None = KNOWN_ITEMS_OPTION,
    bridge: Path | None = typer.Option(
        None, "--bridge", help="A bridge's folder: the new queries search the old gallery through it."
    ),
    gallery_new: Path | None = typer.Option(
        None, "--gallery-new", help="The gallery by the new model: what re-embedding would add."
    ),
    max_loss: float | None = MAX_LOSS_OPTION,
    score: str | None = SCORE_OPTION,
    page: list[Path] = PAGE_OPTION,
    json: bool = JSON_OPTION,
    min_agreement: float | None = MIN_AGREEMENT_OPTION,
    id_: str | None = ID_OPTION,
    vector: str | None = VECTOR_OPTION,
    label: str | None = LABEL_OPTION,
) -> None:
    """Say, with evidence, whether a new model's queries find more than the old model.

    They search the unchanged index (gallery) of the old model, and are compared with keeping the old model. That takes
    judgements: labels in all files, --relevance, or --known-items, a stand-in for real queries. Without them nothing is
    judged: the output then shows how much of a re-embedding (--gallery-new) is shown.

    Features are .npz (arrays features, labels, ids), .npy (NAME.labels.npy beside it), .parquet (columns of those
    names), a folder of shards that holdfast embed wrote, or one model's features of a run (RUN/features/01). Ids are
    optional; with them queries are paired by id. The gallery may also be a store, of which 20,000 vectors are taken at
    random: postgresql://HOST/DATABASE#TABLE, http(s)://HOST#COLLECTION of Qdrant, or qdrant:FOLDER#COLLECTION.

    Exit status: 0 if at most --max-loss is lost, by the whole interval; 1 if more is lost or it is not shown; 2 bad
    input; 3 not judged, because there are no judgements. With --min-agreement, 0 and 1 say whether it is reached.

    Example: holdfast check --gallery index.npz --queries-old old.npz --queries-new new.npz --relevance qrels.tsv
    """
    with judging("check", page, json=json) as progress:
        columns = (id_, vector, label)
        stored = _gallery_source(gallery, columns)
        from holdfast.checks import check as check_queries
        from holdfast.reports import check_report

        named = (None, None, None) if _is_store(gallery) else columns
        old, new, items = query_files(queries_old, queries_new, known_items, named)
        if old is None or new is None:
            raise HoldfastError("give --queries-old and --queries-new, or --known-items")
        result = check_queries(
            stored,
            old,
            new,
            named_columns(gallery_new, named, "gallery"),
            known_items=items,
            bridge=None if bridge is None else load_bridge(bridge),
            relevance=relevance,
            score=score,
            max_loss=max_loss,
            min_agreement=min_agreement,
            device=device_of_environment(),
            progress=progress,
        )
    show_result(result, check_report(result.as_json()), page, json=json)


def _is_store(gallery: str) -> bool:
    """Whether this is the URL of a store; --id, --vector and --label are then the columns of its table only."""
    return "://" in gallery or gallery.startswith("qdrant:")


def _gallery_source(gallery: str, columns: ColumnNames) -> "Path | FeatureSet":
    """The gallery as a file, or as a sample of the store at a URL. columns: of ids, vectors and classes."""
    if not _is_store(gallery):
        source: Path | FeatureSet = named_columns(Path(gallery), columns, "gallery")
        return source
    from holdfast.gallery.attached import stored_sample
    from holdfast.gallery.attached.source import Address

    url, mark, table = gallery.rpartition("#")
    if not (mark and url and table):
        raise HoldfastError(f"--gallery {gallery.partition(':')[0]}:...: name the table or collection, as in URL#TABLE")
    id_, vector, label = columns
    return stored_sample(Address(url, table, id_ or "id", vector or "", label), STORE_SAMPLE)
