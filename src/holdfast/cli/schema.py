"""``holdfast schema``: what a recipe may say, for editors."""

from holdfast.cli.show import print_json


def schema() -> None:
    """Print the JSON Schema of recipes, with which editors complete and check them.

    Save it and name it in the first line of a recipe: #:schema ./holdfast.schema.json (Taplo, Even Better TOML).
    """
    from holdfast.recipes.json_schema import recipe_json_schema

    print_json(recipe_json_schema())
