"""``holdfast schema``: the JSON Schema of recipes, for editors."""

import typer

from holdfast.cli.show import print_json


def schema(
    own: bool = typer.Option(False, "--own", help="The schema for holdfast start and update, not holdfast run."),
) -> None:
    """Print the JSON Schema of recipes, for editors.

    Editors use it to complete and check a recipe. Save it and name it in the first line of a recipe:
    #:schema ./holdfast.schema.json (Taplo, Even Better TOML).
    """
    from holdfast.experiments.json_schema import own_recipe_json_schema, recipe_json_schema

    print_json(own_recipe_json_schema() if own else recipe_json_schema())
