"""Older spellings of commands: ``holdfast schema``, and ``reproduce`` and ``theory``, which say where they are now."""

import typer

PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True}


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
    from holdfast.errors import HoldfastError

    raise HoldfastError(
        f"{command} belongs to the study of the paper, which is not part of the installed package; "
        f"in a checkout of the repository run: python -m papers.stationary {command}"
    )
