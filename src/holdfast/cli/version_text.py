"""What ``start`` and ``update`` show: progress while they work, and what came out."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from holdfast.cli.show import print_json, print_table, say
from holdfast.wording import counted


@contextlib.contextmanager
def making(name: str, *, quiet: bool) -> Iterator[Any]:
    """Progress on stderr; an interruption is told in one line."""
    from holdfast.cli.interruption import between_steps
    from holdfast.cli.progress import watcher

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
