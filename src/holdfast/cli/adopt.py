"""``holdfast adopt``: make a model version 0 from its stored vectors alone."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from holdfast.cli.options import JSON_OPTION
from holdfast.cli.show import print_json, print_table, say
from holdfast.wording import counted, per_cent

if TYPE_CHECKING:
    from holdfast.lifecycle import Adoption


def adopt(
    features: Path = typer.Option(..., "--features", help="The stored vectors: .npz, .npy or .parquet."),
    labels: Path | None = typer.Option(
        None, "--labels", help="Their classes: .npy, or one per line; default: those in the features' file."
    ),
    out: Path = typer.Option(..., "--out", help="A new folder for the adopted model."),
    new: Path | None = typer.Option(None, "--new", help="A new model's features of the same items, to try every way."),
    new_model: Path | None = typer.Option(None, "--new-model", help="That model's folder, to add a map to it."),
    way: str | None = typer.Option(None, "--way", help="projection, means or map; default: the best."),
    slots: int | None = typer.Option(None, "--slots", help="Vertices of the projection's simplex."),
    held_out: float = typer.Option(0.3, "--held-out", help="Share of classes that are not used for fitting."),
    confidence: float = typer.Option(0.95, "--confidence", help="Level of the two-sided intervals."),
    min_gain: float = typer.Option(0.0, "--min-gain", help="Smallest gain that is good enough, as a fraction of 1."),
    seed: int = typer.Option(0, "--seed", help="Seed of the split by class, the fits and the resamples."),
    steps: int = typer.Option(300, "--steps", help="Steps of each fit that has no closed form."),
    json: bool = JSON_OPTION,
) -> None:
    """Adopt another model as version 0, from its stored vectors.

    Only the vectors and their classes are needed; later versions are trained to be compatible with them. Three ways are
    tried on classes that are held out from fitting: a projection into a simplex, prototypes at the class means, and,
    with --new, a map from a new model's queries. The report shows the gain of each with intervals, and says if none is
    good enough. Ids in the file (paths of the images) allow later models to be trained against the vectors.
    """
    from holdfast.lifecycle import adopt as judge_and_write

    found = judge_and_write(
        features,
        labels,
        out=out,
        new=new,
        new_model=new_model,
        way=way,
        slots=slots,
        held_out=held_out,
        confidence=confidence,
        min_gain=min_gain,
        seed=seed,
        steps=steps,
    )
    if json:
        print_json({"folder": str(out), **found.as_json()})
    else:
        _print(found, out)


def _print(found: "Adoption", out: Path) -> None:
    from holdfast.lifecycle.adoption_result import WAYS

    say(
        f"{counted(found.vectors, 'vector')} of {counted(found.dim, 'number')}, {counted(found.classes, 'class')}; "
        f"judged by {counted(found.queries, 'query')} of {counted(found.held_out_classes, 'class')} "
        "held out from fitting."
    )
    say(f"As stored: {_score(found.as_stored)} top-1.")
    if found.new_alone is not None:
        say(f"The new model, with everything re-embedded: {_score(found.new_alone)}.")
    rows = [
        [
            way.name,
            "untouched" if way.stored_gain is None else _gain(way.stored_gain),
            "not known" if way.later is None else _gain(way.later.gain),
            "" if way.later is None else way.later.verdict,
        ]
        for way in found.ways
    ]
    level = f"{100 * found.confidence:g} %"
    say(f"Gains over the stored vectors, in points, with {level} intervals:")
    print_table(["way", "the stored vectors", "new queries on them", "verdict"], rows)
    for way in found.ways:
        if way.later is not None and way.later.untouched is not None:
            say(f"{way.name}, with the stored vectors unchanged: {_gain(way.later.untouched)} points.")
    for note in found.notes:
        say(f"Note: {note}.")
    say(f"Chosen: {found.chosen}, {WAYS[found.chosen]}. Why: {found.reason}.")
    if found.good_enough is False:
        say("Not good enough: it is not shown that the new model's queries beat the old ones on the stored vectors.")
    elif found.good_enough is None:
        say("It is not known yet whether a new model's queries beat the old ones: give its features (--new).")
    typer.echo(f"{out}: written.")
    if found.chosen != "map":  # which already has its new model
        say(
            f'Next: name it in a recipe ([adopted] folder = "{out.name}") and train against it: holdfast run RECIPE '
            "--models FOLDER_ABOVE; docs/adopt.md has an example."
        )


def _score(estimate: Any) -> str:
    return f"{per_cent(estimate.value)} % ({per_cent(estimate.low)} to {per_cent(estimate.high)})"


def _gain(estimate: Any) -> str:
    return f"{100 * estimate.value:+.2f} ({100 * estimate.low:+.2f} to {100 * estimate.high:+.2f})"
