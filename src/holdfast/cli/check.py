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
    device_of_environment,
    refusal,
    refuse_output,
    show_result,
)
from holdfast.cli.options import ID_OPTION, JSON_OPTION, LABEL_OPTION, QUIET_OPTION, VECTOR_OPTION
from holdfast.cli.progress import StageProgress
from holdfast.cli.verdict_exit import exit_on_failure
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
    score: str | None = SCORE_OPTION,
    html: Path | None = HTML_OPTION,
    markdown: bool = MARKDOWN_OPTION,
    json: bool = JSON_OPTION,
    min_agreement: float | None = MIN_AGREEMENT_OPTION,
    id_: str | None = ID_OPTION,
    vector: str | None = VECTOR_OPTION,
    label: str | None = LABEL_OPTION,
    quiet: bool = QUIET_OPTION,
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
    with exit_on_failure("check", json=json and not markdown, refuse=refusal(markdown and not json)):
        refuse_output(html, markdown=markdown, json=json)
        columns = (id_, vector, label)
        stored = _gallery_source(gallery, columns)
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
                score=score,
                max_loss=max_loss,
                min_agreement=min_agreement,
                device=device_of_environment(),
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


def _gallery_source(gallery: str, columns: _Names) -> "Path | FeatureSet":
    """The gallery as a file, or as a sample of the store at a URL. columns: of ids, vectors and classes."""
    if not _is_store(gallery):
        source: Path | FeatureSet = _named_columns(Path(gallery), columns)
        return source
    from holdfast.gallery.attached import stored_sample
    from holdfast.gallery.attached.source import Address

    url, mark, table = gallery.rpartition("#")
    if not (mark and url and table):
        raise HoldfastError(f"--gallery {gallery.partition(':')[0]}:...: name the table or collection, as in URL#TABLE")
    id_, vector, label = columns
    return stored_sample(Address(url, table, id_ or "id", vector or "", label), STORE_SAMPLE)
