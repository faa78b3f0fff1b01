"""Older spellings of commands: ``metrics`` and ``schema`` work, ``reproduce`` and ``theory`` say where they are now."""

from pathlib import Path

import typer

from holdfast.cli.evaluate import print_matrix_scores
from holdfast.cli.options import JSON_OPTION

PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True}


def metrics(
    matrix: Path = typer.Argument(..., help="CSV, JSON or NPY; row t = query model, column k = gallery model."),
    percent: bool = typer.Option(False, "--percent", help="The scores are per cent, not fractions of 1."),
    json: bool = JSON_OPTION,
) -> None:
    """Print AC, AA and ACA of a compatibility matrix. Now: holdfast evaluate FILE."""
    print_matrix_scores(matrix, percent, json)
    typer.echo("holdfast metrics is now: holdfast evaluate FILE", err=True)


def schema(
    own: bool = typer.Option(False, "--own", help="The schema for holdfast start and update, not holdfast run."),
) -> None:
    """Print the JSON Schema of recipes. Now: holdfast ls schema."""
    from holdfast.cli.ls import print_schema

    print_schema(own)
    typer.echo("holdfast schema is now: holdfast ls schema", err=True)


def reproduce(context: typer.Context) -> None:
    """Moved: python -m papers.stationary reproduce."""
    _moved("reproduce")


def theory(context: typer.Context) -> None:
    """Moved: python -m papers.stationary theory."""
    _moved("theory")


def _moved(command: str) -> None:
    from holdfast.core.errors import HoldfastError

    raise HoldfastError(
        f"{command} belongs to the study of the paper, which is not part of the installed package; "
        f"in a checkout of the repository run: python -m papers.stationary {command}"
    )
