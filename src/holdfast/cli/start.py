"""``holdfast start``: version 1 of one's own model, from a folder of images or a file of vectors.

What ``start`` and ``update`` show: progress while they work, and what came out.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from holdfast.cli.run import DEVICE_OPTION, QUIET_OPTION, SET_OPTION
from holdfast.cli.show import JSON_OPTION, print_json, print_table, say
from holdfast.wording import counted

DATA = typer.Option(..., "--data", help="A folder of images per class, a CSV of path,label, or vectors (npz, parquet).")
OUT = typer.Option(..., "--out", "-o", help="The new model's folder.")
RECIPE = typer.Option(None, "--recipe", "-r", help="TOML: network, method, training.")
EMBED = typer.Option(False, "--embed-buffer", help="Keep images with the model, not their paths and hashes.")


def start(
    data: Path = DATA,
    out: Path = OUT,
    recipe: str | None = RECIPE,
    slots: int | None = typer.Option(
        None,
        "--slots",
        min=2,
        help="Room for classes, now and later.",
        show_default="twice those there are, 100 at least",
    ),
    set_: list[str] = SET_OPTION,
    embed_buffer: bool = EMBED,
    device: str = DEVICE_OPTION,
    quiet: bool = QUIET_OPTION,
    json: bool = JSON_OPTION,
) -> None:
    """Train version 1 of your own model, on images or vectors.

    A fifth of the images is held out, to judge later versions by; some of each class are remembered, to be replayed.
    The folder is what Encoder.from_pretrained and holdfast gallery read; recipe.toml in it says how it was trained.
    Killed, the same command goes on.

    Example: holdfast start --data photos/spring --out models/1

    Then: holdfast update --from models/1 --data photos/summer --out models/2
    """
    from holdfast.lifecycle.versions import start

    with making(f"{out}", quiet=quiet or json) as watch:
        info = start(
            data,
            out,
            recipe=recipe,
            overrides=set_,
            slots=slots,
            embed_buffer=embed_buffer,
            device=device,
            watch=watch,
        )
    tell_version(out, info, json=json)


@contextlib.contextmanager
def making(name: str, *, quiet: bool) -> Iterator[Any]:
    """Progress on stderr; an interruption is told in one line."""
    from holdfast.cli.progress import between_steps, watcher

    try:
        with watcher(name, quiet=quiet) as shown, between_steps(shown) as watch:
            yield watch
    except KeyboardInterrupt:
        typer.echo("holdfast: interrupted; what is done is kept: the same command again goes on", err=True)
        raise typer.Exit(130) from None


def tell_version(out: Path, info: dict[str, Any], *, json: bool) -> str | None:
    """Print what the model in ``out`` is; its verdict, None where there was nothing to be judged against."""
    from holdfast.storage import read_json

    path = out / "check.json"
    check = read_json(path) if path.exists() else None
    verdict = None if check is None else str(check["verdict"])
    if json:
        slots = info["slots"]
        print_json(
            {
                "model": str(out),
                "version": info["task"],
                "method": info["method"],
                "data": info["data"],
                "classes": info["classes"],
                "slots": {"all": slots["num_slots"], "owned": len(slots["owners"])},
                "verdict": verdict,
                "check": check,
            }
        )
        return verdict
    data = info["data"]
    trained_on = counted(data["images"], data.get("of", "images").removesuffix("s"))
    say(
        f"{out}: version {info['task']}, trained on {trained_on} of {_kinds(data)} "
        f"and {data['replayed']:,} replayed; {len(info['classes'])} of {info['slots']['num_slots']} slots taken"
    )
    if check is None:
        typer.echo(f"Next: holdfast update --from {out} --data NEW_{data.get('of', 'images').upper()} --out NEXT")
    elif "queries" not in check:
        say(f"Not judged: {check['reason']}.")
    else:
        _tell_check(info["evidence"], check, out)
    return verdict


def _kinds(data: dict[str, Any]) -> str:
    known = data["classes"] - data["new_classes"]
    if not data["new_classes"]:
        return counted(known, "known class")
    if not known:
        return counted(data["new_classes"], "new class")
    return f"{data['new_classes']:,} new and {counted(known, 'known class')}"


def _tell_check(evidence: list[dict[str, Any]], check: dict[str, Any], out: Path) -> None:
    say(f"Verdict against {evidence[0]['name']}: {check['verdict']}; {check['reason']}.")
    rows = [[entry["which"], entry["verdict"], str(entry["queries"]), *_scores(entry)] for entry in evidence]
    header = ["asked for", "verdict", "queries", "old %", "new %", "gain, points"]
    print_table(header, rows, right=(2, 3, 4, 5))
    if check["verdict"] != "compatible":
        say(
            f"Until a version is compatible, go on asking with {evidence[0]['name']}; more to judge by (--check-on) "
            "narrows the interval."
        )
    typer.echo(f"Evidence: {out / 'check.html'}")


def _scores(entry: dict[str, Any]) -> list[str]:
    from holdfast.cli.show import per_cent

    old, new, gain = (entry[key] for key in ("self_test", "cross_test", "gain"))
    shown = [per_cent(None if score is None else score["value"]) for score in (old, new)]
    if gain is None:
        return [*shown, "–"]
    return [*shown, f"{100 * gain['value']:+.1f} ({100 * gain['low']:+.1f} to {100 * gain['high']:+.1f})"]
