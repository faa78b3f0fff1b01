"""``holdfast slots``: show the slots of a model, or add slots."""

from pathlib import Path

import typer

from holdfast.cli.options import JSON_OPTION
from holdfast.cli.show import print_json, print_table

app = typer.Typer(help="Show which class has which slot, or add slots.", no_args_is_help=True)


@app.command("show")
def show(
    model: Path = typer.Argument(..., metavar="MODEL", help="A model folder, such as models/1 or RUN/models/01."),
    json: bool = JSON_OPTION,
) -> None:
    """Show how many slots a model has and which class has which.

    Example: holdfast slots show runs/demo-simplex_hoc-t6-s0/models/06
    """
    from holdfast.train.encoders import Encoder
    from holdfast.train.engine.model_slots import read_slots

    encoder = Encoder.from_pretrained(model)
    registry = read_slots(encoder, model)
    free = registry.num_slots - len(registry.owners)
    if json:
        print_json({**registry.to_json(), "free": free})
        return
    grown = f", grown from {', then '.join(map(str, registry.grown))}" if registry.grown else ""
    typer.echo(f"{registry.num_slots} slots{grown}; {len(registry.owners)} owned, {free} free")
    rows = sorted((slot, name) for name, slot in registry.owners.items())
    print_table(["slot", "class"], [[str(slot), name] for slot, name in rows], right=(0,))


@app.command("grow")
def grow(
    models: list[Path] = typer.Argument(..., metavar="MODELS", help="Model folders."),
    to: int = typer.Option(..., "--to", help="The new number of slots."),
    out: Path | None = typer.Option(None, "--out", "-o", help="Write copies here.", show_default="in place"),
    json: bool = JSON_OPTION,
) -> None:
    """Give models more slots without changing their cosines.

    Each projection is multiplied so that every cosine between features stays as it was (checked) and old classes come
    to lie on their vertices of the larger simplex. Vectors already stored need the same multiplication
    (holdfast.train.geometry.embed_in_larger_simplex); compact ones need none. Nothing is written unless all models
    can be grown.

    Example: holdfast slots grow models/1 models/2 --to 500
    """
    from holdfast.train.engine.model_slots import grow_models

    written = grow_models(models, to, out)
    if json:
        changes = [
            {"model": str(one.model), "written": str(one.written), "from": one.before, "to": one.after}
            for one in written
        ]
        print_json({"slots": to, "models": changes})
        return
    for one in written:
        typer.echo(f"{one.written}: {to} slots")
    if not written:
        typer.echo(f"Nothing to do: all have {to} slots")
