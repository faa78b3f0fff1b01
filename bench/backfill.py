"""A backfill: what searches feel of it, and which order of items raises accuracy first.

    python bench/backfill.py GALLERY [--rate N] [--searches 2000] [--threads 2] [--json FILE]
    python bench/backfill.py --old OLD.npz --new NEW.npz [--labels] [--pairs 1500] [--queries 1000] [--seeds 5]
                             [--threads 2] [--json FILE]

GALLERY: one with images at hand and items in older versions, such as holdfast demo --train leaves. A copy
is worked on, so the same figures can be had again. Searches are by vector, of ten hits, one after the other in a thread
of their own, first on a quiet gallery, then for as long as the backfill to the newest version takes.

--old, --new: features of the same items by two models, paired by id, as holdfast check reads them. For each seed some
items are queries, as many others are earlier queries, and the rest is a gallery of the old model. A bridge is fitted on
--pairs items of the gallery. The gallery then moves to the new model, tenth by tenth, in each order:

- oldest: as in the files.
- most-hit: by how often an item is among the ten nearest of the earlier queries, by the old model.
- random.
- uncertain: by the errors that the bridge expects of an item, from its stored vector.
- residual: by how far an item's own bridged query misses it, which is known once it is re-embedded.

The area is the mean of the accuracy over the share that has moved: overlap@10 with a full re-embedding, and with
--labels the share of first hits of the right class.
"""

import argparse
import os
import shutil
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import torch
from timing import write_figures

from holdfast import Gallery
from holdfast.bridges import Bridge
from holdfast.core.environment import describe
from holdfast.core.errors import HoldfastError
from holdfast.vectors import nearest
from holdfast.vectors.feature_files import read_features
from holdfast.vectors.feature_set import FeatureSet, rows_of_ids
from holdfast.vectors.lengths import unit

ORDERS = ("oldest", "most-hit", "random", "uncertain", "residual")
SHARES = np.linspace(0, 1, 11)
FIRST = 10


def main() -> None:
    parser = argparse.ArgumentParser(description="A backfill: searches beside it, and orders compared.")
    parser.add_argument("gallery", type=Path, nargs="?")
    parser.add_argument("--rate", type=float)
    parser.add_argument("--searches", type=int, default=2000)
    parser.add_argument("--old", type=Path, help="features of the old model: compare orders")
    parser.add_argument("--new", type=Path, help="features of the new model, of the same items")
    parser.add_argument("--labels", action="store_true", help="also measure first hits of the right class")
    parser.add_argument("--pairs", type=int, default=1500)
    parser.add_argument("--queries", type=int, default=1000, help="at most a quarter of the items")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", help="also write the figures to this file")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if (options.gallery is None) != (options.old is not None and options.new is not None):
        parser.error("give a GALLERY, or both --old and --new")
    if options.gallery is None:
        report_orders(options)
    else:
        report_searches(options)


def report_searches(options: argparse.Namespace) -> None:
    folder = Path(tempfile.mkdtemp(prefix="holdfast-bench-"))
    environment, load = describe("cpu"), os.getloadavg()
    try:
        shutil.copytree(options.gallery, folder / "gallery")
        with Gallery.open(folder / "gallery") as gallery:
            found = measure(gallery, options)
    finally:
        shutil.rmtree(folder)
    print(f"{environment['processor']}, {options.threads} threads; load before the start: {load[0]:.1f}")
    print(f"{found['items']} items, {found['moved']} moved in {found['seconds']:.1f} s: {found['items_per_s']:.1f}/s")
    for name in ("quiet", "beside"):
        row = found[name]
        print(f"searches {name:6} n {row['n']:6}  p50 {row['p50_ms']:.2f} ms  p99 {row['p99_ms']:.2f} ms")
    if options.json:
        kept = ("rate", "searches", "threads")  # a place on one machine says nothing about a figure
        given = argparse.Namespace(gallery=options.gallery.name, **{name: vars(options)[name] for name in kept})
        write_figures(options.json, "backfill", environment, given, load=load, **found)


def measure(gallery: Gallery, options: argparse.Namespace) -> dict:
    newest = gallery.versions()[-1]
    rng = np.random.default_rng(0)
    queries = rng.standard_normal((options.searches, newest.stored_dim))
    stop, beside = threading.Event(), []

    def ask(query: np.ndarray) -> float:
        started = time.perf_counter()
        gallery.search(vector=query, version=newest.number)
        return 1000 * (time.perf_counter() - started)

    def go_on() -> None:
        while not stop.is_set():
            beside.append(ask(queries[len(beside) % len(queries)]))

    quiet = [ask(query) for query in queries]
    searching = threading.Thread(target=go_on)
    searching.start()
    try:
        done = gallery.backfill(rate=options.rate).as_json()
    finally:
        stop.set()
        searching.join()
    kept = ("moved", "unreadable", "without_image", "share", "seconds")
    return {
        "items": gallery.stats()["items"],
        **{name: done[name] for name in kept},
        "items_per_s": done["rate"],
        "quiet": figures(quiet),
        "beside": figures(beside),
    }


def figures(times: list[float]) -> dict[str, float]:
    return {"n": len(times), "p50_ms": float(np.percentile(times, 50)), "p99_ms": float(np.percentile(times, 99))}


def report_orders(options: argparse.Namespace) -> None:
    old, new, labels = read_pairs(options.old, options.new, labelled=options.labels)
    options.queries = min(options.queries, len(old) // 4)
    found = [compare_orders(old, new, labels, options, seed) for seed in range(options.seeds)]
    environment = describe("cpu")
    left = len(old) - 2 * options.queries
    print(f"{environment['processor']}; {left} items, {options.queries} queries, {options.seeds} seeds")
    print(f"{options.old.stem} to {options.new.stem}, {options.pairs} pairs: {', '.join(one['kind'] for one in found)}")
    orders = []
    for measure in found[0]["curves"]:
        print(f"{measure}, area under the curve in % (deviation over seeds; gain over random)")
        for order in ORDERS:
            curves = np.array([one["curves"][measure][order] for one in found])
            areas = area(curves)
            gains = areas - area(np.array([one["curves"][measure]["random"] for one in found]))
            row = {
                "measure": measure,
                "order": order,
                "area": areas.mean(),
                "area_sd": deviation(areas),
                "gain_over_random": gains.mean(),
                "gain_sd": deviation(gains),
                "curve": curves.mean(0).tolist(),
            }
            orders.append(row)
            middle = "  ".join(f"{100 * row['curve'][n]:.1f}" for n in (0, 2, 5, 8, 10))
            print(
                f"{order:15} {100 * row['area']:6.2f} ({100 * row['area_sd']:.2f})  "
                f"{100 * row['gain_over_random']:+6.2f} ({100 * row['gain_sd']:.2f})  at 0 20 50 80 100 %: {middle}"
            )
    if options.json:
        given = argparse.Namespace(
            **{name: vars(options)[name] for name in ("labels", "pairs", "queries", "seeds", "threads")},
            old=options.old.stem,
            new=options.new.stem,
        )
        kinds = [one["kind"] for one in found]
        write_figures(options.json, "backfill orders", environment, given, items=left, kinds=kinds, orders=orders)


def area(curves: np.ndarray) -> np.ndarray:
    """Mean of curves (S x 11) over the share that has moved, by trapezoids."""
    return ((curves[:, 1:] + curves[:, :-1]) / 2).mean(1)


def deviation(values: np.ndarray) -> float:
    return float(values.std(ddof=1)) if len(values) > 1 else float("nan")


def read_pairs(old: Path, new: Path, *, labelled: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Unit features of the same items by both models, in the order of the old file, and their labels."""
    first, second = read_features(old, "gallery"), read_features(new, "gallery")
    if first.ids is not None and second.ids is not None:
        rows = rows_of_ids(first.ids, second, first.name)
    elif len(first) == len(second):
        rows = np.arange(len(first))
    else:
        raise HoldfastError(f"{old} has {len(first)} rows and {new} {len(second)}; give both files ids")
    if labelled and first.labels is None:
        raise HoldfastError(f"{old} has no labels; leave out --labels")
    return features(first, np.arange(len(first))), features(second, rows), first.labels if labelled else None


def features(source: FeatureSet, rows: np.ndarray) -> np.ndarray:
    return unit(source.rows.take(rows))


def compare_orders(
    old: np.ndarray, new: np.ndarray, labels: np.ndarray | None, options: argparse.Namespace, seed: int
) -> dict:
    """The accuracy at ``SHARES`` for each order, and the kind of the bridge."""
    random = np.random.default_rng(seed)
    shuffled = random.permutation(len(old))
    asked, earlier = shuffled[: options.queries], shuffled[options.queries : 2 * options.queries]
    items = np.sort(shuffled[2 * options.queries :])
    pairs = random.permutation(items)[: options.pairs]
    bridge = Bridge.fit(new=new[pairs], old=old[pairs], seed=seed)
    stored = old[items]
    hits = nearest(old[earlier], stored, FIRST).indices
    times = np.bincount(hits.ravel(), minlength=len(items))
    residuals = 1 - (bridge(new[items]) * stored).sum(1)
    orders = {
        "oldest": np.arange(len(items)),
        "most-hit": np.argsort(-times, kind="stable"),
        "random": random.permutation(len(items)),
        "uncertain": np.argsort(-bridge.expected_errors(stored), kind="stable"),
        "residual": np.argsort(-residuals, kind="stable"),
    }
    before, after = bridge.scale(bridge(new[asked]) @ stored.T), new[asked] @ new[items].T
    wanted = best(after)
    curves: dict[str, dict[str, list[float]]] = {"overlap@10": {name: [] for name in orders}}
    if labels is not None:
        curves["top1"] = {name: [] for name in orders}
    for name, order in orders.items():
        for share in SHARES:
            moved = np.zeros(len(items), dtype=bool)
            moved[order[: round(share * len(items))]] = True
            found = best(np.where(moved, after, before))
            overlap = (found[:, :, None] == wanted[:, None]).any(axis=1).mean()
            curves["overlap@10"][name].append(float(overlap))
            if labels is not None:
                right = labels[items[found[:, 0]]] == labels[asked]
                curves["top1"][name].append(float(right.mean()))
    return {"kind": bridge.kind, "curves": curves}


def best(scores: np.ndarray) -> np.ndarray:
    """Columns of the highest scores of each row, best first."""
    return np.argsort(-scores, axis=1, kind="stable")[:, :FIRST]


if __name__ == "__main__":
    main()
