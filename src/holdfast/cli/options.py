"""Options that several verbs share, and the values of options that take lists. Nothing heavy is imported here."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import typer

from holdfast.core.errors import HoldfastError

SET_OPTION = typer.Option([], "--set", metavar="KEY=VALUE", help="Override one setting, such as train.epochs=10.")
DATA_OPTION = typer.Option(None, "--data", help="Where data sets are.", show_default="$HOLDFAST_DATA, else ./data")
MODELS_OPTION = typer.Option(
    None, "--models", help="Where pre-trained models are.", show_default="$HOLDFAST_MODELS, else ./models"
)
DEVICE_OPTION = typer.Option("auto", "--device", help="auto, cpu, cuda or cuda:N.")
JSON_OPTION = typer.Option(False, "--json", help="Print JSON instead of text.")
ID_OPTION = typer.Option(None, "--id", help="The column or array of ids.", show_default="ids, id or _id")
VECTOR_OPTION = typer.Option(
    None, "--vector", help="The column or array of vectors.", show_default="features, or the only one"
)
LABEL_OPTION = typer.Option(None, "--label", help="The column or array of classes.", show_default="labels or label")
"""Of all files of vectors that a command takes; ``vectors.vector_tables.Columns`` reads them."""

Number = TypeVar("Number", int, float)


def refuse_given(context: typer.Context, parameters: Sequence[str], reason: str) -> None:
    """Refuse options that were given on the command line and would have no effect.

    parameters: names of the command's parameters.
    reason: what follows the option's name in the message.
    """
    options = {one.name: one.opts[-1] for one in context.command.params}
    for name in parameters:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise HoldfastError(f"{options[name]} {reason}")


def yes_or_no(option: str, text: str | None) -> bool | None:
    """The value of an option that takes yes or no; None if it is not given."""
    if text is None:
        return None
    if text.lower() not in ("yes", "no"):
        raise HoldfastError(f"{option} must be yes or no, got {text!r}")
    return text.lower() == "yes"


def name_list(text: str) -> list[str]:
    """Names separated by commas; empty for an empty text."""
    return [name.strip() for name in text.split(",") if name.strip()]


def method_list(text: str) -> list[str]:
    """The value of ``--methods``: method names separated by commas, or "all". An unknown name is refused."""
    from holdfast.train.methods import METHODS, method_class

    names = list(METHODS) if text == "all" else name_list(text)
    if not names:
        raise HoldfastError(f"--methods {text!r} names no method; known: {', '.join(METHODS)}")
    for name in names:
        method_class(name)
    return names


def int_list(option: str, text: str, *, required: bool = True) -> list[int]:
    """Whole numbers separated by commas. An empty text is refused if ``required``, else an empty list."""
    return number_list(option, text, int, "whole numbers", required=required)


def number_list(
    option: str, text: str, kind: Callable[[str], Number], unit: str, *, required: bool = True
) -> list[Number]:
    """Numbers separated by commas.

    option: the option's name, for the error message.
    kind: int or float.
    unit: what the numbers are, for the error message, such as "degrees".
    required: refuse an empty text.
    """
    try:
        numbers = [kind(word) for word in name_list(text)]
    except ValueError:
        raise HoldfastError(f"{option} must be {unit} separated by commas, got {text!r}") from None
    if required and not numbers:
        raise HoldfastError(f"{option} must name {unit}, got {text!r}")
    return numbers
