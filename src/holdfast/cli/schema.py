"""``holdfast schema``: the older spelling of ``holdfast ls schema``."""

import typer

from holdfast.cli.ls import print_schema


def schema(
    own: bool = typer.Option(False, "--own", help="The schema for holdfast start and update, not holdfast run."),
) -> None:
    """Print the JSON Schema of recipes. Now: holdfast ls schema."""
    print_schema(own)
    typer.echo("holdfast schema is now: holdfast ls schema", err=True)
