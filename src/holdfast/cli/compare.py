"""``holdfast compare``: all ways to serve a new model beside the old one, and whether one finds more than staying."""

from pathlib import Path
from typing import Any

import typer

from holdfast.cli.options import JSON_OPTION, QUIET_OPTION
from holdfast.cli.progress import StageProgress
from holdfast.cli.show import print_json, print_table, say
from holdfast.cli.verdict_exit import exit_on_failure
from holdfast.core.errors import HoldfastError


def compare(
    old: Path = typer.Argument(..., metavar="OLD", help="The index embedded by the old model."),
    new: Path = typer.Argument(..., metavar="NEW", help="The index, or a sample of it, by the new model."),
    queries_old: Path | None = typer.Option(
        None, "--queries-old", help="Queries by the old model.", show_default="arrays queries, query_ids of OLD"
    ),
    queries_new: Path | None = typer.Option(
        None, "--queries-new", help="The same queries by the new model.", show_default="those of NEW"
    ),
    relevance: Path | None = typer.Option(
        None, "--relevance", help="Judgements: which items are right for which query (BEIR's TSV, or TREC)."
    ),
    score: str = typer.Option("nDCG@10", "--score", help="nDCG@K, MRR@K, recall@K, hit@K, P@K or mAP@K; K up to 20."),
    bridge: Path | None = typer.Option(None, "--bridge", help="A bridge from the new space to the old one."),
    pairs: int = typer.Option(1000, "--pairs", min=0, help="Items that the bridges are fitted on."),
    old_model: bool = typer.Option(
        True, "--old-model/--no-old-model", help="Whether the old model can still embed queries when people search."
    ),
    content: bool = typer.Option(
        True, "--content/--no-content", help="Whether items can be embedded when people search."
    ),
    confidence: float = typer.Option(0.95, "--confidence", help="Level of the two-sided intervals."),
    seed: int = typer.Option(0, "--seed", min=0, help="Seed of the choice of pairs and of the mixed indexes."),
    html: Path | None = typer.Option(None, "--html", help="Write one self-contained page to this file."),
    markdown: bool = typer.Option(False, "--markdown", help="Print Markdown."),
    quiet: bool = QUIET_OPTION,
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
    with exit_on_failure("compare", json=json and not markdown):
        from holdfast.bridges import Bridge
        from holdfast.checks import compare as compare_ways
        from holdfast.core.storage import check_file_writable
        from holdfast.reports.compare_page import compare_markdown, write_comparison

        if html is not None:
            check_file_writable(html)
        if json and markdown:
            raise HoldfastError("--json and --markdown both print to stdout; choose one")
        with StageProgress("compare", quiet=quiet or json or markdown) as progress:
            result = compare_ways(
                old,
                new,
                queries_old,
                queries_new,
                relevance=relevance,
                score=score,
                bridge=None if bridge is None else Bridge.load(bridge),
                pairs=pairs,
                old_model=old_model,
                content=content,
                confidence=confidence,
                seed=seed,
                progress=progress,
            )
        record = result.as_json()
        if json:
            print_json(record)
        elif markdown:
            typer.echo(compare_markdown(record), nl=False)
        else:
            _print(record, html)
        if html is not None:
            write_comparison(record, html)
    raise typer.Exit(result.exit_code)


def _print(record: dict[str, Any], html: Path | None) -> None:
    from holdfast.reports.compare_page import compare_headline, compare_rows, compare_sentences

    say(compare_headline(record))
    if record["ways"]:
        rows = compare_rows(record)
        heads = ["way", "score", "gain (interval)", "of re-emb.", "now", "per query", "ms", "storage"]
        print_table(heads, rows, right=range(1, len(heads)))
    for sentence in (*(f"Note: {note}." for note in record["notes"]), *compare_sentences(record)):
        say(sentence)
    if html is not None:
        typer.echo(f"Page: {html.resolve()}")
