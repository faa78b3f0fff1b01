"""AC, AA and ACA of a matrix in a file: ``holdfast evaluate FILE``, and ``holdfast metrics``, its older spelling."""

from pathlib import Path

import typer

from holdfast.cli.options import JSON_OPTION
from holdfast.cli.show import fraction, print_json, print_table
from holdfast.errors import HoldfastError
from holdfast.wording import counted, per_cent


def metrics(
    matrix: Path = typer.Argument(..., help="CSV, JSON or NPY; row t = query model, column k = gallery model."),
    percent: bool = typer.Option(False, "--percent", help="The scores are per cent, not fractions of 1."),
    json: bool = JSON_OPTION,
) -> None:
    """Print AC, AA and ACA of a compatibility matrix. Now: holdfast evaluate FILE."""
    print_scores(matrix, percent, json)
    typer.echo("holdfast metrics is now: holdfast evaluate FILE", err=True)


def print_scores(matrix: Path, percent: bool, json: bool) -> None:
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
        ["AC", fraction(summary["AC"]), "share of (new model, old gallery) pairs that beat the old model itself"],
        ["AA", f"{per_cent(summary['AA'])} %", "mean of all self- and cross-tests"],
        ["ACA", f"{per_cent(summary['ACA'])} %", "mean of the cross-tests alone, 0 where not compatible"],
    ]
    if "AA_computable" in summary:
        rows.append(
            ["AA_computable", f"{per_cent(summary['AA_computable'])} %", "mean of the cells there are; not for ranking"]
        )
    print_table([counted(summary["T"], "model"), "", ""], rows, right=(1,))
