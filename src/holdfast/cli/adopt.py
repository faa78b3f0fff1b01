"""``holdfast adopt``: make a model version 0 from its stored vectors alone."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from holdfast.cli.options import JSON_OPTION
from holdfast.cli.progress import StageProgress, exit_on_interrupt
from holdfast.cli.show import print_json, print_table, say
from holdfast.core.wording import counted, per_cent

if TYPE_CHECKING:
    from holdfast.train.versions import Adoption


def adopt(
    vectors: Path | None = typer.Argument(
        None, help="The stored vectors: .npz, .npy or .parquet.", metavar="FILE", show_default=False
    ),
    features: Path | None = typer.Option(None, "--features", help="The same as FILE.", show_default=False),
    labels: Path | None = typer.Option(
        None, "--labels", help="Their classes: .npy, or one per line; default: those in FILE, if any."
    ),
    out: Path = typer.Option(..., "--out", help="A new folder for the adopted model."),
    new: Path | None = typer.Option(None, "--new", help="A new model's vectors of the same items, or of some of them."),
    new_model: Path | None = typer.Option(None, "--new-model", help="That model's folder, to copy it beside a bridge."),
    way: str | None = typer.Option(
        None, "--way", help="projection, means, bridge or unchanged; default: the best.", show_default=False
    ),
    slots: int | None = typer.Option(None, "--slots", help="Vertices of the projection's simplex."),
    held_out: float = typer.Option(0.3, "--held-out", help="Share of items and classes that are not fitted to."),
    confidence: float = typer.Option(0.95, "--confidence", help="Level of the two-sided intervals."),
    min_gain: float = typer.Option(0.0, "--min-gain", help="Smallest gain that is good enough, as a fraction of 1."),
    seed: int = typer.Option(0, "--seed", help="Seed of the splits, the fits and the resamples."),
    steps: int = typer.Option(300, "--steps", help="Steps of each fit that has no closed form."),
    bridge_pairs: int = typer.Option(2000, "--bridge-pairs", help="Items that a bridge is fitted on, at most."),
    max_queries: int = typer.Option(5000, "--max-queries", help="Held-out items searched for each answer, at most."),
    quiet: bool = typer.Option(False, "--quiet", "-q", help="Show no progress."),
    json: bool = JSON_OPTION,
) -> None:
    """Adopt another model as version 0, from its stored vectors.

    Only the vectors are needed. Without classes their own space is kept as it is; with --new a bridge from the new
    model's queries is fitted and judged on held-out items. With classes all ways are compared: a projection into a
    simplex, prototypes at the class means, and, with --new, the bridge. The report has two answers: for unseen items of
    the same classes, and for classes that nothing was fitted on. Ids in the file (paths of the images) allow later
    models to be trained against the vectors.

    Example: holdfast adopt index.npz --out models/0
    """
    from holdfast.core.errors import HoldfastError

    if (vectors is None) == (features is None):
        raise HoldfastError("give one file of stored vectors: holdfast adopt FILE --out FOLDER")
    source = features if vectors is None else vectors
    assert source is not None
    interrupted = exit_on_interrupt("nothing was written; run the same command again")
    with interrupted, StageProgress("adopt", quiet=quiet or json) as progress:
        from holdfast.train.versions import adopt as judge_and_write

        found = judge_and_write(
            source,
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
            bridge_pairs=bridge_pairs,
            max_queries=max_queries,
            progress=progress,
        )
    if json:
        print_json({"folder": str(out), **found.as_json()})
    else:
        _print(found, out)


def _print(found: "Adoption", out: Path) -> None:
    from holdfast.train.versions.adoption_result import BRIDGE, OTHER_CLASSES, SAME_CLASSES, UNCHANGED, WAYS

    classes = counted(found.classes, "class") if found.classes else "no classes known"
    say(f"{counted(found.vectors, 'vector')} of {counted(found.dim, 'number')}, {classes}.")
    if found.pairs is not None:
        say(f"Paired with a new model's: {counted(found.pairs, 'vector')}.")
    if found.same_classes is not None or found.other_classes is not None:
        say(f"Scores are top-1, with {100 * found.confidence:g} % intervals. Gains are over the stored vectors.")
    both = found.same_classes is not None and found.other_classes is not None
    if found.same_classes is not None:
        _print_question(found, f"{'1. ' if both else ''}{SAME_CLASSES}", "same_classes")
    if found.other_classes is not None:
        _print_question(found, f"{'2. ' if both else ''}{OTHER_CLASSES}", "other_classes")
    if found.bridge is not None:
        say(_bridge_line(found.bridge))
    elif found.same_classes is None and found.other_classes is None:
        say(f"Judged: {found.judged}.")
    for note in found.notes:
        say(f"Note: {note}.")
    say(f"Chosen: {found.chosen}, {WAYS[found.chosen]}. Why: {found.reason}.")
    if found.chosen == BRIDGE:
        for name, answer in (
            (SAME_CLASSES, found.way(BRIDGE).same_classes if found.ways else None),
            (OTHER_CLASSES, found.way(BRIDGE).other_classes if found.ways else None),
        ):
            if answer is not None:
                say(f"Bridge, {name}: {_gain(answer.gain)} points, {answer.verdict}.")
    _print_verdict(found)
    typer.echo(f"{out}: written.")
    named = shlex.quote(str(out))
    if found.chosen == BRIDGE:
        say(f"Next: search the stored vectors with bridged queries; the bridge is {out / 'bridge'}.")
    elif found.chosen == UNCHANGED:
        say(f"Next: holdfast gallery create GALLERY --model {named}, or holdfast gallery attach for a store.")
    else:
        say(f"Next: train a model against it: holdfast update --from {named} --data IMAGES --out NEXT; docs/adopt.md.")


def _print_question(found: "Adoption", name: str, which: str) -> None:
    """One question: what the vectors score as they are, and the gain of each way."""
    from holdfast.train.versions.adoption_result import searched

    question = getattr(found, which)
    say(f"{name}: {searched(question)} of {counted(question.classes, 'class')}")
    say(f"As stored: {_score(question.as_stored)}.")
    if question.new_alone is not None:
        say(f"The new model, with everything re-embedded: {_score(question.new_alone)}.")
    rows = []
    for way in found.ways:
        answer = getattr(way, which)
        gain, verdict = ("not known", "") if answer is None else (_gain(answer.gain), answer.verdict)
        stored = [] if which == "same_classes" else [_gain(way.stored_gain) if way.stored_gain else "unchanged"]
        rows.append([way.name, *stored, gain, verdict])
    columns = [] if which == "same_classes" else ["stored vectors, points"]
    print_table(["way", *columns, "new queries, points", "verdict"], rows)
    for way in found.ways:
        answer = getattr(way, which)
        if answer is not None and answer.untouched is not None:
            say(f"{way.name}, with the stored vectors unchanged: {_gain(answer.untouched)} points.")


def _print_verdict(found: "Adoption") -> None:
    from holdfast.train.versions.adoption_result import OTHER_CLASSES, SAME_CLASSES

    asked = SAME_CLASSES if found.same_classes is not None else OTHER_CLASSES
    has_classes = found.same_classes is not None or found.other_classes is not None
    if found.good_enough and has_classes:
        say(f"Good enough: the new model's queries beat the old ones on {asked}.")
    elif found.good_enough is False and has_classes:
        say(f"Not good enough: it is not shown that the new model's queries beat the old ones on {asked}.")
    elif found.good_enough is False:
        say("Not good enough: no bridge helps. Check that both files name the same items by the same ids.")
    elif found.bridge is not None:
        say("It is not known whether the new model's queries beat the old ones: that needs classes (--labels).")
    elif found.pairs is None:
        say("It is not known yet whether a new model's queries beat the old ones: give its vectors (--new).")


def _bridge_line(bridge: dict[str, Any]) -> str:
    """Kind and evidence of the bridge in one sentence."""
    evidence = bridge["evidence"]
    best = evidence["candidates"][0]
    shown = (
        f"Bridge: {bridge['kind']} from {counted(evidence['pairs'], 'pair')}. Judged on {evidence['held_out']:,} of "
        f"them held out: {evidence['measure']} {per_cent(best['value'], 1)} %, random hits "
        f"{per_cent(evidence['chance'], 1)} %"
    )
    without = next((one for one in evidence["candidates"][1:] if one["kind"] == "none"), None)
    return shown + ("." if without is None else f", without a bridge {per_cent(without['value'], 1)} %.")


def _score(estimate: Any) -> str:
    return f"{per_cent(estimate.value)} % ({per_cent(estimate.low)} to {per_cent(estimate.high)})"


def _gain(estimate: Any) -> str:
    return f"{100 * estimate.value:+.2f} ({100 * estimate.low:+.2f} to {100 * estimate.high:+.2f})"
