"""``holdfast check``: compare a new model with the old one on the old gallery, and say whether it may replace it."""

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from holdfast.cli.options import JSON_OPTION, QUIET_OPTION, refuse_given
from holdfast.cli.progress import StageProgress
from holdfast.cli.show import print_json, print_table, say
from holdfast.cli.verdict_exit import exit_on_failure
from holdfast.core.errors import HoldfastError
from holdfast.core.wording import decimal, per_cent

if TYPE_CHECKING:
    from holdfast.bridges import Bridge
    from holdfast.checks import CheckResult, HistoryResult, MixedResult
    from holdfast.vectors import FeatureSet

_LISTED = 5
"""How many lost queries, classes or undecided pairs are printed."""

TABLE_OPTION = typer.Option(None, "--table", help="If --gallery is a URL: the table or collection.")
ID_OPTION = typer.Option("id", "--id", help="If --gallery is a URL: the column of ids.")
VECTOR_OPTION = typer.Option("", "--vector", help="If --gallery is a URL: the column of vectors.")
LABEL_OPTION = typer.Option(None, "--label", help="If --gallery is a URL: the column of classes.")
SAMPLE_OPTION = typer.Option(None, "--sample", help="If --gallery is a URL: take so many vectors, at random by --seed.")


def check(
    context: typer.Context,
    run: Path | None = typer.Argument(None, metavar="RUN", help="A run folder: check its whole history."),
    gallery: str | None = typer.Option(None, "--gallery", help="The old model's stored gallery: file or URL."),
    queries_old: Path | None = typer.Option(None, "--queries-old", help="Queries embedded by the old model."),
    queries_new: Path | None = typer.Option(None, "--queries-new", help="The same queries by the new model."),
    gallery_new: Path | None = typer.Option(None, "--gallery-new", help="The gallery by the new model: the ceiling."),
    model: list[str] = typer.Option(
        [], "--model", metavar="QUERIES,GALLERY", help="Of one model, oldest first; twice or more: a history."
    ),
    mixed: bool = typer.Option(False, "--mixed", help="Judge a gallery of several versions, given by --part."),
    part: list[str] = typer.Option(
        [], "--part", metavar="FILE[,BRIDGE]", help="The vectors of one version, oldest first."
    ),
    min_exposure: float | None = typer.Option(
        None, "--min-exposure", help="With --mixed: smallest exposure ratio of every version, such as 0.8."
    ),
    min_kept: float | None = typer.Option(
        None, "--min-kept", help="With --mixed: smallest share of the re-embedded score, such as 0.97."
    ),
    bridge: Path | None = typer.Option(
        None, "--bridge", help="A bridge's folder: the new queries search the old gallery through it."
    ),
    relevance: Path | None = typer.Option(
        None, "--relevance", help="CSV, TSV or parquet of query id, gallery id[, grade]; replaces classes."
    ),
    leave_one_out: bool = typer.Option(
        False, "--leave-one-out", help="Queries are items of the gallery, by id, and do not find themselves."
    ),
    score: str = typer.Option("top1", "--score", help="top1, recall@K or mAP."),
    protocol: str = typer.Option("instance", "--protocol", help="instance, or template: one mean per class."),
    confidence: float = typer.Option(0.95, "--confidence", help="Level of the two-sided intervals."),
    max_loss: float | None = typer.Option(
        None,
        "--max-loss",
        help="The accepted loss, as a fraction of 1; 0 asks for a gain.",
        show_default="0.01, a point",
    ),
    cluster_by_class: bool = typer.Option(False, "--cluster-by-class", help="Resample whole classes of queries."),
    far: float = typer.Option(0.01, "--far", help="The false-accept rate of the old threshold."),
    threshold: float | None = typer.Option(None, "--threshold", help="The score threshold in use, if any."),
    resamples: int = typer.Option(4000, "--resamples", help="Resamples for the intervals."),
    seed: int = typer.Option(0, "--seed", help="Seed of the resamples."),
    table: str | None = TABLE_OPTION,
    id_: str = ID_OPTION,
    vector: str = VECTOR_OPTION,
    label: str | None = LABEL_OPTION,
    sample: int | None = SAMPLE_OPTION,
    html: Path | None = typer.Option(None, "--html", help="Write one self-contained page to this file."),
    markdown: bool = typer.Option(False, "--markdown", help="Print Markdown for a pull-request comment."),
    device: str = typer.Option("cpu", "--device", help="cpu, or cuda or cuda:N, which need torch."),
    quiet: bool = QUIET_OPTION,
    json: bool = JSON_OPTION,
) -> None:
    """Check, with evidence, whether a new model may replace the old.

    It may if its queries can search the unchanged index (gallery) of the old model. Features are .npz (arrays features,
    labels, ids), .npy (NAME.labels.npy beside it), .parquet (columns of those names), a folder of shards that holdfast
    embed wrote, or one model's features of a run (RUN/features/01). Ids are optional; with them queries are paired by
    id. The gallery may also be a store that is sampled in place: postgresql://..., Qdrant's http(s)://... or
    qdrant:FOLDER.

    With --mixed, a whole gallery of several versions is compared with a full re-embedding.

    Exit status: 0 if at most --max-loss is lost, by the whole interval; 1 if more is lost or it is not shown; 2 if it
    could not be judged.

    Example: holdfast check --gallery index.npz --queries-old old.npz --queries-new new.npz
    """
    given: dict[str, Any] = {
        "score": score,
        "protocol": protocol,
        "confidence": confidence,
        "max_loss": max_loss,
        "cluster_by_class": cluster_by_class,
        "resamples": resamples,
        "seed": seed,
    }
    pair: dict[str, Any] = {"relevance": relevance, "far": far, "threshold": threshold}
    pair["leave_one_out"] = leave_one_out
    with exit_on_failure("check", json=json and not markdown, refuse=_refusal(markdown and not json)):
        if html is not None:
            from holdfast.core.storage import check_file_writable

            check_file_writable(html)
        if json and markdown:
            raise HoldfastError("--json and --markdown both print to stdout; choose one")
        stored: Any = _gallery_source(context, gallery, table, id_, vector, label, sample, seed)
        files = (stored, queries_old, queries_new, gallery_new)
        quiet = quiet or json or markdown
        asked = {"min_exposure": min_exposure, "min_kept": min_kept}
        result: CheckResult | HistoryResult | MixedResult
        if mixed or part or any(value is not None for value in asked.values()):
            others = (run, stored, queries_old, bridge, threshold, leave_one_out or None, *model)
            if not mixed or any(other is not None for other in (*others, max_loss)) or protocol != "instance":
                raise HoldfastError(
                    "--mixed goes with --part, --queries-new, --gallery-new, --min-exposure, --min-kept"
                )
            refuse_given(context, ("far",), "judges one pair of models; leave it out with --mixed")
            result = _judge_mixed(part, files, {**given, **asked, "relevance": relevance}, device, quiet)
        else:
            if run is not None or model:
                names = ("relevance", "bridge", "leave_one_out", "far", "threshold")
                refuse_given(context, names, "judges one pair of models; leave it out to check a history")
            pair["bridge"] = _load_bridge(bridge)
            result = _judge(run, model, files, given, pair, device, quiet)
        record = result.as_json()
        if json:
            print_json(record)
        elif markdown:
            from holdfast.reports import check_markdown

            typer.echo(check_markdown(record), nl=False)
        else:
            _print_check(record, html)
        if html is not None:  # after the answer is printed, so that it is not lost if the page cannot be written
            from holdfast.reports import write_check

            write_check(record, html)
    raise typer.Exit(result.exit_code)


def _refusal(markdown: bool) -> Callable[[str], None]:
    """Prints the reason why nothing was judged as Markdown, for a pull request; prints nothing otherwise."""

    def refuse(reason: str) -> None:
        if markdown:
            from holdfast.reports import refusal_markdown

            typer.echo(refusal_markdown(reason), nl=False)

    return refuse


def _load_bridge(folder: Path | None) -> "Bridge | None":
    from holdfast.bridges import Bridge

    return None if folder is None else Bridge.load(folder)


def _judge(
    run: Path | None,
    model: list[str],
    files: tuple[Any, ...],
    given: dict[str, Any],
    pair: dict[str, Any],
    device: str,
    quiet: bool,
) -> "CheckResult | HistoryResult":
    from holdfast.checks import check, check_history

    ways = [run is not None, bool(model), any(file is not None for file in files)]
    if sum(ways) != 1:
        raise HoldfastError(
            "give a run folder, or --model twice or more, or --gallery, --queries-old and --queries-new"
        )
    with StageProgress("check", quiet=quiet) as progress:
        settings = {**given, "device": device, "progress": progress}
        if ways[2]:
            gallery, old, new, gallery_new = files
            if gallery is None or old is None or new is None:
                raise HoldfastError("--gallery, --queries-old and --queries-new are needed together")
            return check(gallery, old, new, gallery_new, **pair, **settings)
        if run is None:
            return check_history([_model_files(text) for text in model], **settings)
        from holdfast.train.evaluation import run_models

        return check_history(*run_models(run), **settings)


def _judge_mixed(
    parts: list[str], files: tuple[Any, ...], given: dict[str, Any], device: str, quiet: bool
) -> "MixedResult":
    from holdfast.bridges import Bridge
    from holdfast.checks import check_mixed

    _, _, queries, gallery_new = files
    if queries is None or gallery_new is None or not parts:
        raise HoldfastError("--mixed needs --part for each version, --queries-new and --gallery-new")
    opened: list[tuple[str, Bridge | None, Any]] = []
    for text in parts:
        file, comma, folder = text.partition(",")
        if not file or (comma and not folder):
            raise HoldfastError(f"--part {text!r}: write it as FILE or FILE,BRIDGE")
        bridge = Bridge.load(folder) if folder else None
        opened.append((file, bridge, None if bridge is None else bridge.scale))
    known = {name: value for name, value in given.items() if name not in ("protocol", "max_loss")}
    with StageProgress("check", quiet=quiet) as progress:
        return check_mixed(opened, queries, gallery_new, **known, device=device, progress=progress)


def _model_files(text: str) -> tuple[str, str]:
    parts = text.split(",")
    if len(parts) != 2 or not all(parts):
        raise HoldfastError(f"--model {text!r}: write it as QUERIES,GALLERY")
    return parts[0], parts[1]


def _gallery_source(
    context: typer.Context,
    gallery: str | None,
    table: str | None,
    id: str,
    vector: str,
    label: str | None,
    sample: int | None,
    seed: int,
) -> "Path | FeatureSet | None":
    """The gallery as a file, or as a sample of the store at a URL. Options of a store are refused beside a file."""
    from holdfast.gallery.attached import stored_sample
    from holdfast.gallery.attached.source import Address, is_url

    if gallery is None or not is_url(gallery):
        store_options = ("table", "id_", "vector", "label", "sample")
        refuse_given(context, store_options, "needs a --gallery that is the URL of a store")
        return None if gallery is None else Path(gallery)
    if table is None:
        raise HoldfastError(f"--gallery {gallery.partition(':')[0]}:...: name the table or collection with --table")
    return stored_sample(Address(gallery, table, id, vector, label), sample, seed)


def _print_check(record: dict[str, Any], html: Path | None) -> None:
    """Print the share of re-embedding kept, the verdict, the tests, the evidence, notes, and what is not covered."""
    from holdfast.reports.check_text import basis_sentence, headline, kept_sentence, lead_sentences, not_covered

    kept = kept_sentence(record)
    for sentence in dict.fromkeys([*([kept] if kept else []), headline(record), *lead_sentences(record)]):
        say(sentence)
    {"history": _print_history, "mixed": _print_mixed, "check": _print_pair}[record["kind"]](record)
    for note in record["notes"]:
        say(f"Note: {note}.")
    say(basis_sentence(record))
    if caveat := not_covered(record):
        say(caveat)
    if html is not None:
        typer.echo(f"Page: {html.resolve()}")


def _print_pair(record: dict[str, Any]) -> None:
    from holdfast.reports.check_text import class_table, evidence_sentences, gain_sentence, lost_query, score_table

    if sentence := gain_sentence(record):
        say(sentence)
    heads, rows = score_table(record)
    if rows:
        print_table(heads, rows, right=(1, 2))
    lost = (record.get("changes") or {}).get("lost_queries", [])
    evidence = evidence_sentences(record)
    first, others = (evidence[:1], evidence[1:]) if lost else ([], evidence)
    for sentence in first:
        say(sentence)
    for entry in lost[:_LISTED]:
        lines = textwrap.wrap(lost_query(entry), 74, max_lines=3, placeholder=" ...")  # ids are often long paths
        typer.echo("  " + "\n    ".join(lines))
    if len(lost) > _LISTED:
        typer.echo(f"  ... and {len(lost) - _LISTED:,} more: --json lists them all")
    for sentence in others:
        say(sentence)
    heads, losing = class_table(record, _LISTED)
    if losing:
        print_table(heads, [[name[:40], *numbers] for name, *numbers in losing], right=(1, 2, 3))


def _print_mixed(record: dict[str, Any]) -> None:
    from holdfast.reports.check_text import (
        EXPOSURE_MEANING,
        VERSION_COLUMNS,
        score_table,
        version_rows,
        version_sentences,
    )

    heads, rows = score_table(record)
    print_table(heads, rows, right=(1, 2))
    print_table(VERSION_COLUMNS, version_rows(record), right=range(1, len(VERSION_COLUMNS)))
    say(EXPOSURE_MEANING)
    for sentence in version_sentences(record):
        say(sentence)


def _print_history(record: dict[str, Any]) -> None:
    from holdfast.reports.check_text import points

    marks = {"compatible": "+", "incompatible": "-", "not shown": "?", None: " "}
    models = record["models"]
    header = ["query model", *models]
    rows = [[name, *(_cell(record, t, k, marks) for k in range(len(models)))] for t, name in enumerate(models)]
    width = sum(2 + max(len(row[i]) for row in (header, *rows)) for i in range(len(header)))
    if width > 80:
        say(f"{len(models)} models are too many for a table here: --html and --json give all cells.")
    else:
        print_table(header, rows, right=range(1, len(header)))
        typer.echo(f"{record['score']}, %, on the gallery of each model (columns).")
        typer.echo("+ compatible   ? not shown   - incompatible   – cannot be compared")
    summary = [
        [name, *(decimal(record[name][key], 3) for key in ("value", "low", "high"))] for name in ("AC", "AA", "ACA")
    ]
    print_table(["", "value", "low", "high"], summary, right=(1, 2, 3))
    cells = [verdict for row in record["verdicts"] for verdict in row if verdict]
    say(", ".join(f"{cells.count(name)} {name}" for name in ("compatible", "not shown", "incompatible")) + ".")
    for cell in record["uncertain"][:_LISTED]:
        gain = cell["gain"]
        typer.echo(
            f"  not decided: model {cell['query_model']} on gallery {cell['gallery_model']}: "
            f"{points(gain['value'])} ({points(gain['low'])} to {points(gain['high'])}) points"
        )
    if len(record["uncertain"]) > _LISTED:
        typer.echo(f"  ... and {len(record['uncertain']) - _LISTED} more: --json lists them all")


def _cell(record: dict[str, Any], t: int, k: int, marks: dict[Any, str]) -> str:
    found = record["matrix"][t][k]
    if found is None:
        return "–  " if k < t else ""
    return f"{per_cent(found['value'], 1)} {marks[record['verdicts'][t][k]]}"
