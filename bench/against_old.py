"""The same answers as an older checkout on the same data: bridges, verdicts, rankings and exposure.

    python bench/against_old.py OLD_CHECKOUT [--own-splits SEEDS] [--json FILE]

Each checkout computes in a process of its own, with its ``src`` first on PYTHONPATH. Bridges get the split of the pairs
that the old checkout drew, so that only the arithmetic differs. "scores" are merged scores of bridged queries with old
vectors; "measured" are the values, exposures and errors of every candidate
that both compare; ``auto`` compares others, and decides by first places.
"""

import argparse
import inspect
import json
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
KINDS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("auto", {}),
    ("rotation", {}),
    ("rotation", {"centred": True}),
    ("rotation", {"rank": 12}),
    ("affine", {"ridge": 0.1}),
    ("affine", {"ridge": 1.0, "rank": 12}),
    ("local", {}),
)
SPACES = {  # items, new and old size, whether labels are given, items in the gallery
    "600 pairs, 96 to 64": (600, 96, 64, False, None),
    "600 pairs, 64 to 64": (600, 64, 64, False, 3000),
    "1,500 pairs, 64 to 96, labels": (1500, 64, 96, True, 1500),
    "40 pairs, 48 to 64": (40, 48, 64, False, None),
    "300 pairs, 384 to 512": (300, 384, 512, False, None),
    "900 pairs, 1,280 to 1,280": (900, 1280, 1280, False, None),
}
CHECKS: tuple[dict[str, Any], ...] = (
    {},
    {"score": "mAP"},
    {"score": "recall@5", "protocol": "template"},
    {"max_loss": 0.05},
    {"label_free": True},
)


def main() -> None:
    parser = argparse.ArgumentParser(description="The same answers as an older checkout.")
    parser.add_argument("old", type=Path, help="folder of the old checkout")
    parser.add_argument("--json", help="also write the differences to this file")
    parser.add_argument("--own-splits", type=int, metavar="SEEDS", help="compare bridges of each checkout's own splits")
    parser.add_argument("--answers", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--splits", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.answers:
        if options.own_splits:
            write_overlaps(options.answers, options.own_splits)
        else:
            write_answers(options.answers, options.splits)
        return
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as name:
        files = {}
        for side, checkout in (("old", options.old), ("new", ROOT)):
            files[side] = Path(name, f"{side}.pickle")
            extra = ["--splits", str(files["old"])] if side == "new" else []
            if options.own_splits:
                extra = ["--own-splits", str(options.own_splits)]
            call = [sys.executable, __file__, str(options.old), "--answers", str(files[side]), *extra]
            environment = {**os.environ, "PYTHONPATH": f"{checkout.resolve()}/src"}
            subprocess.run(call, check=True, env=environment, cwd=name)
        old, new = (pickle.loads(files[side].read_bytes()) for side in ("old", "new"))  # written by this script
    if options.own_splits:
        print(f"{'overlap@10':50} {'old':>8} {'new':>8} {'difference':>11} {'spread of old':>14}")
        for case, values in old.items():
            gap, spread = np.mean(new[case]) - np.mean(values), np.ptp(values)
            print(f"{case:50} {np.mean(values):8.4f} {np.mean(new[case]):8.4f} {gap:+11.4f} {spread:14.4f}")
        return
    rows = [compared(case, old["answers"][case], new["answers"][case]) for case in old["answers"]]
    print(f"{'case':58} {'numbers':>9} {'largest difference':>19}  other than numbers")
    for row in rows:
        largest = "-" if row["largest"] is None else f"{row['largest']:.2e}"
        print(f"{row['case']:58} {row['numbers']:9,} {largest:>19}  {'; '.join(row['different']) or 'equal'}")
    if options.json:
        Path(options.json).write_text(json.dumps({"bench": "against_old", "rows": rows}, indent=2) + "\n")


def compared(case: str, old: Any, new: Any) -> dict[str, Any]:
    """The largest difference of the numbers that both have, and whatever else is not equal."""
    first, second = (dict(leaves(side)) for side in (old, new))
    differences, different = [], []
    for path in first.keys() & second.keys():
        one, other = first[path], second[path]
        if isinstance(one, np.ndarray) and one.shape == other.shape and one.dtype.kind in "fiub":
            gap = np.abs(one.astype(np.float64) - other.astype(np.float64))
            differences.append(float(np.nanmax(gap, initial=0)))
        elif isinstance(one, int | float) and isinstance(other, int | float) and not isinstance(one, bool):
            if one == one or other == other:
                differences.append(abs(float(one) - float(other)))
        elif str(one) != str(other) and not any(word in path for word in ("seconds", "reason", "note", "message")):
            different.append(f"{path}: {one} -> {other}")
    largest = max(differences, default=None)
    return {"case": case, "numbers": len(differences), "largest": largest, "different": sorted(different)}


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, part in value.items():
            if key not in ("seconds", "curve", "nearest", "mixed_overlap", "options"):
                yield from leaves(part, f"{path}/{key}")
    elif isinstance(value, list | tuple):
        for place, part in enumerate(value):
            yield from leaves(part, f"{path}/{place}")
    else:
        yield path, value


def write_answers(file: Path, splits: Path | None) -> None:
    """Compute everything with the checkout that is on the path, and write it."""
    import holdfast.bridges.bridge as fitting
    from holdfast import Bridge, check, check_mixed, nearest

    given = None if splits is None else pickle.loads(splits.read_bytes())["splits"]
    drawn: dict[str, tuple[Any, ...]] = {}
    real = fitting.split_pairs
    kind_of_split = type(real(20, 0))

    def split_pairs(count: int, seed: int, items: int | None = None) -> Any:
        key = f"{count} {seed} {items}"
        if given is None:
            split = real(count, seed, items)
            drawn[key] = (*(np.asarray(rows) for rows in (split.fitted, split.held, split.also_searched)), split.best)
            return split
        return kind_of_split(*given[key])

    fitting.split_pairs = split_pairs
    answers: dict[str, Any] = {}
    for space, (count, new_dim, old_dim, labelled, items) in SPACES.items():
        new, old, labels = pairs(count, new_dim, old_dim)
        unseen_new, unseen_old, _ = pairs(count + 300, new_dim, old_dim)
        queries, stored = unseen_new[count:], unseen_old[count:]
        for kind, options in KINDS:
            if kind == "local" and "centred" in inspect.signature(fitting.BRIDGES["local"].fit).parameters:
                options = {"centred": True}  # what it always was in the old code
            if options.get("rank") and count < 100:
                continue
            bridge = Bridge.fit(
                new=new, old=old, kind=kind, options=options, labels=labels if labelled else None, items=items
            )
            cosines = np.asarray(bridge(queries)) @ stored.T
            named = "" if kind == "local" else options or ""
            answers[f"bridge {kind} {named}, {space}".replace("{", "").replace("}", "")] = {
                "scores": bridge.scale.offset + bridge.scale.slope * cosines,
                "errors": np.asarray(bridge.expected_errors(stored)),
                "measured": {key: part for key, part in bridge.as_json().items() if key != "models"},
            }
    rng = np.random.default_rng(1)
    whole = [rng.integers(-2, 3, (rows, 6)).astype(np.float32) for rows in (300, 20_000)]
    hits = nearest(*(torch_or_numpy(rows) for rows in whole), k=20)
    answers["nearest, with ties"] = {"indices": np.asarray(hits.indices), "scores": np.asarray(hits.scores)}
    new, old, labels = pairs(2300, 96, 64)
    labels = labels.astype(str)
    ids = np.array([f"item-{row}" for row in range(2300)])
    gallery_old, gallery_new = ((rows[:2000], labels[:2000], ids[:2000]) for rows in (old, new))
    queries_old, queries_new = ((rows[2000:], labels[2000:], ids[2000:]) for rows in (old, new))
    bridge = Bridge.fit(new=new[:600], old=old[:600], kind="rotation")
    for settings in CHECKS:
        label_free = settings.get("label_free", False)
        rest = {key: value for key, value in settings.items() if key != "label_free"}
        if given is not None and rest.get("score") == "recall@5":
            rest["score"] = "hit@5"  # the same share of queries, by the name that it has now
        sets = [(part[0], None, part[2]) if label_free else part for part in (gallery_old, queries_old, queries_new)]
        full = (gallery_new[0], None, gallery_new[2]) if label_free else gallery_new
        found = check(*sets, full, bridge=bridge, **rest)
        answers[f"check {settings or ''}".replace("{", "").replace("}", "")] = found.as_json()
    halves = [(old[:1000], labels[:1000], ids[:1000]), (new[1000:2000], labels[1000:2000], ids[1000:2000])]
    parts = [(halves[0], bridge, bridge.scale), (halves[1], None, None)]
    answers["check_mixed"] = check_mixed(parts, queries_new, gallery_new).as_json()
    file.write_bytes(pickle.dumps({"answers": answers, "splits": drawn}))


def write_overlaps(file: Path, seeds: int) -> None:
    """The overlap@10 with a re-embedding of every kind of bridge, by seed of its split."""
    from holdfast import Bridge

    overlaps: dict[str, list[float]] = {}
    for space, (count, new_dim, old_dim, _, _) in SPACES.items():
        new, old, _ = (rows[:count] for rows in pairs(count, new_dim, old_dim))
        unseen_new, unseen_old, _ = (rows[count:] for rows in pairs(count + 300, new_dim, old_dim))
        wanted = np.argsort(-(unseen_new @ unseen_new.T), axis=1)[:, :10]
        for kind, options in KINDS:
            if kind == "auto" or (options.get("rank") and count < 100):
                continue
            for seed in range(seeds):
                bridge = Bridge.fit(new=new, old=old, kind=kind, options=options, seed=seed)
                hits = np.argsort(-(np.asarray(bridge(unseen_new)) @ unseen_old.T), axis=1)[:, :10]
                shared = [len(set(row) & set(right)) for row, right in zip(hits.tolist(), wanted.tolist(), strict=True)]
                overlaps.setdefault(f"{kind} {options or ''}, {space}", []).append(float(np.mean(shared)) / 10)
    file.write_bytes(pickle.dumps(overlaps))


def torch_or_numpy(rows: np.ndarray) -> Any:
    """The old checkouts search tensors only."""
    import holdfast.vectors.neighbours as neighbours

    return neighbours.torch.from_numpy(rows) if hasattr(neighbours, "torch") else rows


def pairs(count: int, new_dim: int, old_dim: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same items by two models, unit rows, and their classes."""
    rng = np.random.default_rng(0)
    turns = [rng.standard_normal((16, dim)) for dim in (new_dim, old_dim)]
    centres = rng.standard_normal((40, 16))
    labels = np.arange(count) % 40
    items = centres[labels] + 0.7 * np.random.default_rng(2).standard_normal((10_000, 16))[:count]
    rows = []
    for number, (turn, noise) in enumerate(zip(turns, (0.1, 0.3), strict=True)):
        seen = np.tanh(items @ turn / 4)
        seen = seen + noise * np.random.default_rng(3 + number).standard_normal((10_000, seen.shape[1]))[:count]
        rows.append((seen / np.linalg.norm(seen, axis=1, keepdims=True)).astype(np.float32))
    return rows[0], rows[1], labels


if __name__ == "__main__":
    main()
