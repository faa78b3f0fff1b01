"""``python -m papers.stationary``: the paper's tables, figures, theorem and propositions."""

import sys

import typer

from holdfast.core.errors import HoldfastError
from papers.stationary.oracle import oracle
from papers.stationary.reproduce import LISTED, reproduce
from papers.stationary.theory import theory
from papers.sweeps.pretrain_command import pretrain

PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True}


def with_recipe_of_the_study(context: typer.Context, recipe: str = typer.Argument(..., metavar="RECIPE")) -> None:
    """As holdfast run, with the recipes, readers and kernels of the study."""
    from holdfast.cli import app as holdfast
    from papers.stationary.recipe_files import study_recipe

    holdfast(["run", study_recipe(recipe), *context.args], prog_name="holdfast")


app = typer.Typer(
    name="papers.stationary",
    help="The study of 'A Stationary (and Therefore Compatible) Representation is All You Need'.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("reproduce", epilog=LISTED)(reproduce)
app.command("oracle")(oracle)
app.command("pretrain")(pretrain)
app.command("run", context_settings=PASS_ON, add_help_option=False)(with_recipe_of_the_study)
app.add_typer(theory, name="theory")


def main() -> None:
    """Run a command. An error that the user can correct is one line on stderr and exit status 1."""
    try:
        app(prog_name="python -m papers.stationary")
    except (HoldfastError, OSError) as error:
        sys.stderr.write(f"papers.stationary: {error}\n")
        sys.exit(1)


if __name__ == "__main__":
    main()
