"""``holdfast start``: train version 1 of your own model. Also what ``start`` and ``update`` print."""

import contextlib
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from holdfast.cli.options import DEVICE_OPTION, JSON_OPTION, SET_OPTION, yes_or_no
from holdfast.cli.show import print_json, print_table, say
from holdfast.core.wording import counted

DATA = typer.Option(..., "--data", help="A folder of images per class, a CSV of path,label, or vectors (npz, parquet).")
OUT = typer.Option(..., "--out", "-o", help="The new model's folder.")
RECIPE = typer.Option(None, "--recipe", "-r", help="TOML: network, method, training.")
BACKBONE_HELP = (
    "timm:NAME, hf:NAME or hf:FOLDER with trained weights, a file of weights (.safetensors, .pt, .pth), a name "
)
SPLIT_FOLDERS = typer.Option(
    None,
    "--split-folders",
    metavar="yes|no",
    help="Whether the folders in --data are splits (train is read) or classes.",
    show_default="yes if all are named like splits",
)
SKIP = typer.Option(
    False, "--skip-unreadable", help="Go on without files that cannot be used; a list is written beside --out."
)


def start(
    data: Path = DATA,
    out: Path = OUT,
    recipe: str | None = RECIPE,
    backbone: str | None = typer.Option(
        None,
        "--backbone",
        metavar="NAME|FILE",
        help=BACKBONE_HELP + "of holdfast ls backbones, or package.module:function.",
        show_default="a small one",
    ),
    set_: list[str] = SET_OPTION,
    split_folders: str | None = SPLIT_FOLDERS,
    skip_unreadable: bool = SKIP,
    device: str = DEVICE_OPTION,
    json: bool = JSON_OPTION,
) -> None:
    """Train version 1 of your own model, on images or vectors.

    With trained weights (--backbone) the whole network is fine-tuned, and its own features are the
    vectors; updates distil from the version before. Without them a small network is trained from random weights by
    d-Simplex-HOC. On vectors a head is trained by Cosine-HOC.
    A fifth of the images is held out; the accuracy on them is printed beside that of no training. Some images of each
    class are kept for replay.
    Encoder.from_pretrained and holdfast gallery read the folder; recipe.toml in it holds the settings of training.
    After a kill, run the same command to resume. Settings by --set: method.slots=N reserves more room for classes,
    buffer.embed=true keeps the images with the model, backbone.weights=FILE is a file of weights for --backbone.

    Example: holdfast start --data photos/spring --out models/1

    With trained weights: holdfast start --data photos/spring --backbone timm:NAME --out models/1

    Then: holdfast update --from models/1 --data photos/summer --out models/2
    """
    from holdfast.train.versions import start as train_first

    with version_progress(f"{out}", quiet=json) as progress:
        info = train_first(
            data,
            out,
            settings=recipe,
            backbone=backbone,
            changes=set_,
            split_folders=yes_or_no("--split-folders", split_folders),
            skip_unreadable=skip_unreadable,
            device=device,
            **progress,
        )
    print_version(out, info, json=json)


@contextlib.contextmanager
def version_progress(name: str, *, quiet: bool) -> Iterator[dict[str, Any]]:
    """Keywords for ``start`` and ``update``: progress on stderr, and Ctrl-C, which is reported in one line."""
    from holdfast.cli.progress import ProgressDisplay, cancel_on_interrupt, exit_on_interrupt
    from holdfast.train.data.decode import report_decoding

    with (
        exit_on_interrupt(),
        ProgressDisplay(name, quiet=quiet) as display,
        report_decoding(display.decoding),
        cancel_on_interrupt() as cancel,
    ):
        yield {"on_event": display.follow, "cancel": cancel}


def print_version(out: Path, info: dict[str, Any], *, json: bool) -> dict[str, Any] | None:
    """Print the version in ``out``; returns its check, None if there is no older version to compare with."""
    from holdfast.core.problems import problem_file
    from holdfast.core.storage import read_json

    path = out / "check.json"
    check: dict[str, Any] | None = read_json(path) if path.exists() else None
    skipped_list = problem_file(out) if info["data"].get("skipped") else None
    if json:
        slots = info["slots"]
        print_json(
            {
                "model": str(out),
                "version": info["task"],
                "method": info["method"],
                "data": info["data"],
                "skipped_list": skipped_list,
                "classes": info["classes"],
                "slots": {"all": slots["num_slots"], "owned": len(slots["owners"])},
                "accuracy": info.get("accuracy", {}),
                "verdict": None if check is None else check["verdict"],
                "check": check,
            }
        )
        return check
    data = info["data"]
    things = data.get("of", "images")
    trained_on = counted(data["images"], things.removesuffix("s"))
    replayed = f" and {data['replayed']:,} replayed" if data["replayed"] else ""
    say(
        f"{out}: version {info['task']}, trained on {trained_on} of {_class_counts(data)}{replayed}{_slots_taken(info)}"
    )
    if data.get("skipped"):
        say(f"Files and folders skipped: {data['skipped']:,}; list: {skipped_list}")
    print_accuracy(info)
    if check is None:
        typer.echo(f"Next: holdfast update --from {shlex.quote(str(out))} --data NEW_{things.upper()} --out NEXT")
    elif "queries" not in check:
        say(f"{'Cannot be compared' if check['exit_code'] == 1 else 'Not judged'}: {check['reason']}.")
    else:
        _print_check(info["evidence"], check, out, things)
    return check


def print_accuracy(info: dict[str, Any]) -> None:
    """Print how good the model is on held-out samples, beside its raw input."""
    from holdfast.train.encoders.accuracy_record import accuracy_sentences

    for sentence in accuracy_sentences(info.get("accuracy", {})):
        say(sentence)
    if not info.get("accuracy"):
        say("Accuracy: not measured, because nothing of the trained classes is held out (held_out.share).")


def _slots_taken(info: dict[str, Any]) -> str:
    """Empty for methods without slots, in whose record every class has one."""
    import inspect

    from holdfast.train.methods import METHODS

    method = METHODS.get(info["method"])
    if method is not None and "slots" not in inspect.signature(method).parameters:
        return ""
    return f"; {len(info['slots']['owners'])} of {info['slots']['num_slots']} slots taken"


def _class_counts(data: dict[str, Any]) -> str:
    known = data["classes"] - data["new_classes"]
    if not data["new_classes"]:
        return counted(known, "known class")
    if not known:
        return counted(data["new_classes"], "new class")
    return f"{data['new_classes']:,} new and {counted(known, 'known class')}"


def _print_check(evidence: list[dict[str, Any]], check: dict[str, Any], out: Path, things: str) -> None:
    """things: "images" or "vectors"."""
    from holdfast.reports.check_report import headline, lead_sentences

    say(f"Checked against model {evidence[0]['name']}, on held-out {things}. {headline(check)}")
    for sentence in lead_sentences(check):
        say(sentence)
    rows = [[entry["which"], _answer(entry), str(entry["queries"]), *_scores(entry)] for entry in evidence]
    print_table(["queries of", "answer", "queries", "old %", "new %", "gain, points"], rows, right=(2, 3, 4, 5))
    if check["exit_code"] != 0:
        say(
            f"This is without a bridge. Without one, keep searching with model {evidence[0]['name']} until a version "
            f"passes; more {things} to check on (--check-on) narrow the interval."
        )
    typer.echo(f"Evidence: {out / 'check.html'}")


def _answer(entry: dict[str, Any]) -> str:
    loss = entry.get("loss")
    return str(loss["answer"] if loss else entry["verdict"])


def _scores(entry: dict[str, Any]) -> list[str]:
    from holdfast.core.wording import per_cent
    from holdfast.reports.check_report import points

    old, new, gain = (entry[key] for key in ("self_test", "cross_test", "gain"))
    shown = [per_cent(None if score is None else score["value"]) for score in (old, new)]
    if gain is None:
        return [*shown, "–"]
    value, low, high = (points(gain[key], 1) for key in ("value", "low", "high"))
    return [*shown, f"{value} ({low} to {high})"]
