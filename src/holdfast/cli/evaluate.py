"""``holdfast evaluate``: evaluate a finished run again, with more scores; or score a matrix in a file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from holdfast.cli.options import JSON_OPTION, name_list, refuse_given
from holdfast.cli.show import print_json, print_table, say, scores_row
from holdfast.core.errors import HoldfastError
from holdfast.core.wording import counted, decimal, per_cent

MATRIX_SUFFIXES = (".csv", ".json", ".npy")


def evaluate(
    context: typer.Context,
    run: Path = typer.Argument(
        ..., metavar="RUN", help="A run folder, or a matrix: CSV, JSON or NPY (row t: query model)."
    ),
    percent: bool = typer.Option(False, "--percent", help="With a matrix: its scores are per cent."),
    scores: str = typer.Option(
        "", "--scores", help="More scores, separated by commas: top5, recall@10, mAP, auc, tar@far=0.01."
    ),
    json: bool = JSON_OPTION,
) -> None:
    """Evaluate a finished run again, or score a matrix.

    Computes the compatibility matrices, and writes metrics.json. No model is run; only the stored features are read,
    and the maps if the method learned some. Each extra score gives a matrix under "extras"; the table shows its mean
    over all pairs of query and gallery model.

    Of a matrix in a file, AC, AA and ACA are printed. Only its lower triangle counts; nan marks two models that cannot
    be compared.

    Example: holdfast evaluate runs/mine --scores top5,mAP
    """
    if not run.is_dir() and run.suffix.lower() in MATRIX_SUFFIXES:
        refuse_given(context, ("scores",), "goes with a run, not a matrix")
        print_matrix_scores(run, percent, json)
        return
    refuse_given(context, ("percent",), "goes with a matrix, not a run")
    from holdfast.core.run_folder import RunFolder
    from holdfast.core.storage import write_json
    from holdfast.train.devices import resolve_device
    from holdfast.train.evaluation import evaluate_run
    from holdfast.train.evaluation.cell_scores import score_of
    from holdfast.train.evaluation.finished_run import keep_extras, read_finished

    extra = name_list(scores)
    for name in extra:
        score_of(name)
    folder = RunFolder(run)
    known, models, labels, maps = read_finished(folder)
    judged = evaluate_run(
        models,
        *labels,
        protocols=list(known["protocols"]),
        extra_scores=extra,
        maps=maps,
        device=resolve_device("auto"),
    )
    keep_extras(judged, known["protocols"])
    metrics = {**known, "protocols": judged}
    write_json(folder.metrics, metrics)
    if json:
        print_json({**metrics, "run": str(run)})
        return
    print_protocols(f"{metrics['method']}, protocol", "AC", judged, extra)
    self_tests = ", ".join(decimal(row[t], 3) for t, row in enumerate(judged[next(iter(judged))]["matrix"]))
    say(f"Self-tests, {next(iter(judged))}: {self_tests}")


def print_protocols(title: str, compatibility: str, judged: dict[str, Any], extra: Sequence[str]) -> None:
    """Print the scores of each protocol, and the means of further scores."""
    from holdfast.metrics import average_accuracy

    print_table(
        [title, compatibility, "AA %", "ACA %", *(f"{name} %" for name in extra)],
        [
            [
                *scores_row(name, protocol),
                *(per_cent(average_accuracy(protocol["extras"][score])) for score in extra),
            ]
            for name, protocol in judged.items()
        ],
        right=range(1, 4 + len(extra)),
    )


def print_matrix_scores(matrix: Path, percent: bool, json: bool) -> None:
    """Print AC, AA and ACA of a matrix in a file.

    Only the lower triangle counts. nan marks two models that cannot be compared: AC counts such a pair as not
    compatible, AA and ACA are then undefined.
    """
    from holdfast.metrics import compatibility_summary
    from holdfast.metrics.matrix_file import read_matrix

    try:
        scores = read_matrix(matrix, percent)
    except HoldfastError as error:  # name the option as the command line does
        raise HoldfastError(str(error).replace("percent=True", "--percent")) from error
    summary = compatibility_summary(scores)
    if json:
        print_json(summary)
        return
    rows = [
        ["AC", decimal(summary["AC"], 3), "share of (new model, old gallery) pairs that beat the old model itself"],
        ["AA", f"{per_cent(summary['AA'])} %", "mean of all self- and cross-tests"],
        ["ACA", f"{per_cent(summary['ACA'])} %", "mean of the cross-tests alone, 0 where not compatible"],
    ]
    if "AA_computable" in summary:
        rows.append(
            ["AA_computable", f"{per_cent(summary['AA_computable'])} %", "mean of the cells there are; not for ranking"]
        )
    print_table([counted(summary["T"], "model"), "", ""], rows, right=(1,))
