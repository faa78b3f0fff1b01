"""How long ``holdfast adopt`` takes, how often it shows progress, and whether sampled queries change its answer.

    python bench/adopt_time.py OLD.npz NEW.npz --name debian-tfidf384-wordllama256 [--threads 2] [--json FILE]

Both files hold features, labels and ids, as for ``holdfast check``. Each command is a process of its own, as a user
runs it: "plain", without ``--new``; "new", with it; "all", with it and all held-out items as queries
(``--max-queries``). "gap" is the longest time in which a command wrote nothing. "cpu" is user and system time, which
other work on the machine changes less than the time on the clock. ``--toy`` makes small random files instead.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from timing import write_figures

from holdfast.core.environment import describe

COMMANDS = {"plain": (), "new": ("--new", "NEW"), "all": ("--new", "NEW", "--max-queries", "1000000000")}


def main() -> None:
    parser = argparse.ArgumentParser(description="How long holdfast adopt takes.")
    parser.add_argument("old", nargs="?", help="vectors of the old model")
    parser.add_argument("new", nargs="?", help="vectors of the new model")
    parser.add_argument("--name", default="toy", help="of this pair, in the figures")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--commands", nargs="+", choices=COMMANDS, default=list(COMMANDS))
    parser.add_argument("--toy", action="store_true", help="small random vectors instead of files")
    parser.add_argument("--json", help="also write the figures to this file")
    options = parser.parse_args()
    environment = describe("cpu")
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as name:
        folder = Path(name)
        old, new = toy(folder) if options.toy else (options.old, options.new)
        if old is None or new is None:
            parser.error("give OLD and NEW, or --toy")
        rows = []
        for command in options.commands:
            words = [{"NEW": new}.get(word, word) for word in COMMANDS[command]]
            rows.append({"command": command, **measured([old, *words], folder / command, options.threads)})
            row = rows[-1]
            print(f"{command:6} {row['wall_s']:7.1f} s, cpu {row['cpu_s']:7.1f} s, gap {row['gap_s']:.1f} s, "
                  f"load {row['load']:.1f}: {row['chosen']}, {json.dumps(row['verdicts'])}")  # fmt: skip
        with np.load(old) as held:
            shape = list(held["features"].shape)
    del options.old, options.new  # places on this machine
    if options.json:
        write_figures(options.json, "adopt_time", environment, options, vectors=shape, rows=rows)


def measured(words: list[Any], out: Path, threads: int) -> dict[str, Any]:
    """One command: times, the longest silence, and what it chose."""
    command = [sys.executable, "-m", "holdfast", "adopt", *map(str, words), "--out", str(out)]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONUNBUFFERED": "1"}
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    load, last, gap, printed = os.getloadavg()[0], started, 0.0, []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment) as run:
        assert run.stdout is not None
        for line in run.stdout:
            now = time.monotonic()
            gap, last = max(gap, now - last), now
            printed.append(line)
    if run.returncode:
        raise SystemExit("".join(printed))
    ended, after = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    report = json.loads((out / "adopted.json").read_text(encoding="utf-8"))["report"]
    questions = {key: report[key] for key in ("same_classes", "other_classes") if report[key]}
    return {
        "wall_s": round(ended - started, 1),
        "cpu_s": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1),
        "gap_s": round(max(gap, ended - last), 1),
        "load": load,
        "chosen": report["chosen"],
        "queries": {key: [one["queries"], one["held_out"]] for key, one in questions.items()},
        "verdicts": {
            f"{way['name']}, {key}": [way[key]["verdict"], round(100 * way[key]["gain"]["value"], 2)]
            for way in report["ways"]
            for key in questions
            if way[key]
        },
    }


def toy(folder: Path) -> tuple[Path, Path]:
    draw = np.random.default_rng(0)
    labels, centres = np.repeat(np.arange(20), 10), draw.normal(size=(20, 8))
    files = (folder / "old.npz", folder / "new.npz")
    for noise, file in zip((0.9, 0.3), files, strict=True):
        features = centres[labels] + noise * draw.normal(size=(len(labels), 8))
        np.savez(file, features=features, labels=labels, ids=np.arange(len(labels)))
    return files


if __name__ == "__main__":
    main()
