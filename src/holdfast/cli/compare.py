"""``holdfast compare``: all ways to serve a new model beside the old one, and whether one finds more than staying."""

from pathlib import Path

import typer

from holdfast.cli.check_output import (
    KNOWN_ITEMS_OPTION,
    PAGE_OPTION,
    RELEVANCE_OPTION,
    judging,
    named_columns,
    query_files,
    show_result,
)
from holdfast.cli.options import ID_OPTION, JSON_OPTION, LABEL_OPTION, VECTOR_OPTION


def compare(
    old: Path = typer.Argument(..., metavar="OLD", help="The index embedded by the old model."),
    new: Path = typer.Argument(..., metavar="NEW", help="The index, or a sample of it, by the new model."),
    queries_old: Path | None = typer.Option(
        None, "--queries-old", help="Queries by the old model.", show_default="arrays queries, query_ids of OLD"
    ),
    queries_new: Path | None = typer.Option(
        None, "--queries-new", help="The same queries by the new model.", show_default="those of NEW"
    ),
    relevance: Path | None = RELEVANCE_OPTION,
    known_items: Path | None = KNOWN_ITEMS_OPTION,
    score: str | None = typer.Option(
        None,
        "--score",
        help="nDCG@K, MRR@K, recall@K, hit@K, P@K or mAP@K; K up to 20.",
        show_default="nDCG@10 with --relevance, else hit@1",
    ),
    old_model: bool = typer.Option(
        True, "--old-model/--no-old-model", help="Whether the old model can still embed queries when people search."
    ),
    content: bool = typer.Option(
        True, "--content/--no-content", help="Whether items can be embedded when people search."
    ),
    id_: str | None = ID_OPTION,
    vector: str | None = VECTOR_OPTION,
    label: str | None = LABEL_OPTION,
    page: list[Path] = PAGE_OPTION,
    json: bool = JSON_OPTION,
) -> None:
    """Compare all ways to serve a new model with keeping the old one.

    Keep, swap, bridge, blend, two-stage search, a converted index, mixed indexes and re-embedding, on your own vectors
    and judgements: what each finds, its gain over keeping with an interval, and what it costs. One way is tested; the
    other rows are exploratory. Files are as for check; OLD and NEW are matched by id.

    Exit status: 0 the tested way is shown to find more than the old model, 1 it is not (keep the old model), 2 bad
    input, 3 not judged, because there are no judgements.

    Example: holdfast compare old.npz new.npz --relevance qrels.tsv
    """
    with judging("compare", page, json=json) as progress:
        from holdfast.checks import compare as compare_ways
        from holdfast.checks.comparison import inner_queries
        from holdfast.reports import compare_report

        columns = (id_, vector, label)
        asked_old, asked_new, items = query_files(queries_old, queries_new, known_items, columns)
        result = compare_ways(
            named_columns(old, columns, "gallery"),
            named_columns(new, columns, "gallery"),
            asked_old if asked_old is not None else inner_queries(old, "queries_old"),
            asked_new if asked_new is not None else inner_queries(new, "queries_new"),
            relevance=relevance,
            known_items=items,
            score=score,
            old_model=old_model,
            content=content,
            progress=progress,
        )
    show_result(result, compare_report(result.as_json()), page, json=json)
