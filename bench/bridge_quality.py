"""What bridges keep of a full re-embedding, for two models' vectors of the same items.

    python bench/bridge_quality.py OLD.npz NEW.npz --name cub-lite0-lite2 [--seeds 0 1 2] [--json FILE]

Both files hold features, labels and ids, as for ``holdfast check``. Half of each class are queries, half the gallery.
Bridges are fitted on a sample of the gallery without labels; labels are used to measure only.

Part one, the gallery holds old vectors only: top-1 of the new model's queries with each kind of map and each number of
pairs, and what ``auto`` chose without labels. Part two, half of the gallery is re-embedded: top-1, and the exposure
ratio of the old items at 1 and 10, for five ways of merging scores; old items are a half of each class, or the first
half of the classes. Everything is compared with no map and with a full re-embedding.
"""

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
from timing import write_figures

from holdfast.bridges import BRIDGES, Bridge
from holdfast.core.environment import describe
from holdfast.core.storage import without_nan
from holdfast.metrics.exposure import StoredItems, exposure, same_scores, search_mixed
from holdfast.vectors import nearest
from holdfast.vectors.feature_files import read_features
from holdfast.vectors.feature_set import rows_of_ids
from holdfast.vectors.lengths import unit
from holdfast.vectors.search import float32

FILES = ("old", "new")
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "rotation": ("rotation", {}),
    "rotation, centred": ("rotation", {"centred": True}),
    "affine 0.1": ("affine", {"ridge": 0.1}),
    "affine 1": ("affine", {"ridge": 1.0}),
    "affine 0.1, rank 64": ("affine", {"ridge": 0.1, "rank": 64}),
    "local": ("local", {}),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="What bridges keep of a full re-embedding.")
    parser.add_argument("old", help="vectors of the old model")
    parser.add_argument("new", help="vectors of the new model")
    parser.add_argument("--name", required=True, help="of this pair, in the figures")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--pairs", type=int, nargs="+", default=[50, 200, 600, 1500, 5000])
    parser.add_argument("--mixed-pairs", type=int, nargs="+", default=[600, 1400])
    parser.add_argument("--most", type=int, default=3000, help="queries and gallery items, each at most")
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--json", help="also write the figures to this file")
    options = parser.parse_args()
    data = Data(options.old, options.new)
    rows: list[dict[str, Any]] = []
    mixed: list[dict[str, Any]] = []
    for seed in options.seeds:
        split = Split(data, seed, options.most)
        rows += whole_gallery(split, options.pairs, options.kinds)
        mixed += mixed_gallery(split, options.mixed_pairs)
        if options.json:  # after each seed, which takes minutes
            figures = without_nan({"data": data.about, "whole": rows, "mixed": mixed})
            asked = argparse.Namespace(**{name: value for name, value in vars(options).items() if name not in FILES})
            write_figures(options.json, "bridge_quality", describe("cpu"), asked, **figures)


class Data:
    """Unit vectors of both models in the same order, and class numbers."""

    def __init__(self, old: str, new: str) -> None:
        first, second = read_features(old, "gallery"), read_features(new, "gallery")
        if first.labels is None or first.ids is None:
            raise SystemExit(f"{old}: needs labels and ids")
        order = rows_of_ids(first.ids, second, old)
        self.old, self.new = (
            unit(float32(part.rows.take(at))) for part, at in ((first, np.arange(len(first))), (second, order))
        )
        self.labels = np.unique(first.labels, return_inverse=True)[1]
        good = self.old.any(axis=1) & self.new.any(axis=1)
        self.old, self.new, self.labels = self.old[good], self.new[good], self.labels[good]
        self.about = {
            "items": len(self.labels),
            "classes": int(self.labels.max()) + 1,
            "dims": {"old": self.old.shape[1], "new": self.new.shape[1]},
        }


class Split:
    """Queries and gallery of one seed. Rows of each are numbers of items."""

    def __init__(self, data: Data, seed: int, most: int) -> None:
        self.data, self.seed = data, seed
        self.random = np.random.default_rng(seed)
        queries, gallery = [], []
        for label in range(data.about["classes"]):
            own = self.random.permutation(np.flatnonzero(data.labels == label))
            queries.append(own[: len(own) // 2])
            gallery.append(own[len(own) // 2 :])
        self.queries, self.gallery = (
            np.sort(self.random.permutation(np.concatenate(part))[:most]) for part in (queries, gallery)
        )
        self.new_queries = data.new[self.queries]
        # With the whole gallery re-embedded: hits, and what they score.
        self.fair = self.gallery[nearest(self.new_queries, data.new[self.gallery], 10).indices]
        self.reembedded = self.top1(self.fair)
        self.old_model = self.top1(self.gallery[nearest(data.old[self.queries], data.old[self.gallery], 1).indices])

    def top1(self, hits: np.ndarray) -> float:
        return float((self.data.labels[hits[:, 0]] == self.data.labels[self.queries]).mean())

    def sample(self, rows: np.ndarray, count: int) -> np.ndarray:
        return rows[self.random.permutation(len(rows))[:count]]


def whole_gallery(split: Split, counts: list[int], kinds: list[str]) -> list[dict[str, Any]]:
    """The gallery holds old vectors only."""
    data, found = split.data, []
    old_gallery = data.old[split.gallery]

    def score(queries: np.ndarray) -> float:
        return split.top1(split.gallery[nearest(queries, old_gallery, 1).indices])

    base = {"seed": split.seed, "old_model": split.old_model, "reembedded": split.reembedded}
    if data.old.shape[1] == data.new.shape[1]:
        found.append({**base, "kind": "none", "pairs": 0, "top1": score(split.new_queries)})
    for count in sorted({min(count, len(split.gallery)) for count in counts}):
        pairs = split.sample(split.gallery, count)
        new, old = data.new[pairs], data.old[pairs]
        for name in kinds:
            kind, given = KINDS[name]
            fitted = BRIDGES[kind].fit(new, old, **given)
            queries = unit(fitted(split.new_queries))
            found.append({**base, "kind": name, "pairs": count, "top1": score(queries)})
        chosen = Bridge.fit(new=new, old=old, items=len(split.gallery), seed=split.seed)
        entry = {
            **base,
            "kind": "auto",
            "pairs": count,
            "top1": score(chosen(split.new_queries)),
            "chosen": chosen.kind,
        }
        found.append({**entry, "options": chosen.options, "seconds": chosen.evidence.seconds})
        report(split, "old vectors only", found[-len(kinds) - 1 :])
    return found


def mixed_gallery(split: Split, counts: list[int]) -> list[dict[str, Any]]:
    """Half of the gallery is re-embedded by the new model."""
    data, found = split.data, []
    middle = data.about["classes"] // 2
    halves = split.random.permutation(len(split.gallery)) % 2 == 0
    for layout, is_old in (("even", halves), ("by class", data.labels[split.gallery] < middle)):
        old_rows, new_rows = split.gallery[is_old], split.gallery[~is_old]
        holder = np.ones(len(data.labels), dtype=np.int64)
        holder[old_rows] = 0
        for count in sorted({min(count, len(old_rows)) for count in counts}):
            pairs = split.sample(old_rows, count)
            bridge = Bridge.fit(new=data.new[pairs], old=data.old[pairs], items=len(old_rows), seed=split.seed)
            merges = {"none": (lambda z: z, same_scores)} if data.old.shape[1] == data.new.shape[1] else {}
            merges |= {rule: (bridge, scale) for rule, scale in rules(bridge, data, pairs, split.seed).items()}
            for rule, (carry, scale) in merges.items():
                queries = split.new_queries
                stored = [
                    StoredItems(old_rows, data.old[old_rows], carry(queries), scale),
                    StoredItems(new_rows, data.new[new_rows], queries),
                ]
                hits = search_mixed(stored, 10)
                ratio = exposure(hits.rows, split.fair, holder, 2)[0].ratio
                found.append(
                    {
                        "seed": split.seed,
                        "layout": layout,
                        "pairs": count,
                        "rule": rule,
                        "chosen": bridge.kind,
                        "top1": split.top1(hits.rows),
                        "reembedded": split.reembedded,
                        "exposure": ratio,
                        "expected": bridge.evidence.chosen.exposure,
                    }
                )
            report(split, f"mixed, {layout}", found[-len(merges) :])
    return found


def rules(bridge: Bridge, data: Data, pairs: np.ndarray, seed: int) -> dict[str, Callable[[np.ndarray], np.ndarray]]:
    """Ways to make scores of bridged queries comparable, measured on a third of the pairs with a bridge of the others.

    The last one is the bridge's own.
    """
    held = np.random.default_rng(seed).permutation(len(pairs))[: max(30, len(pairs) // 3)]
    fitted = np.ones(len(pairs), dtype=bool)
    fitted[held] = False
    kept, rows = pairs[fitted], pairs[held]
    trial = bridge
    if bridge.kind != "none":
        trial = Bridge.fit(new=data.new[kept], old=data.old[kept], kind=bridge.kind, options=bridge.options, seed=seed)
    other = ~np.eye(len(rows), dtype=bool)
    s_old = (trial(data.new[rows]) @ data.old[rows].T)[other].astype(np.float64)
    s_new = (data.new[rows] @ data.new[rows].T)[other].astype(np.float64)
    return {
        "raw": same_scores,
        "all scores": standardised(s_old, s_new),
        "regression": regression(s_old, s_new),
        "rank matching": rank_matching(s_old, s_new),
        "best scores": bridge.scale,
    }


def standardised(s_old: np.ndarray, s_new: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Mean and deviation of all scores."""
    slope = float(s_new.std() / s_old.std())
    return lambda s: float(s_new.mean()) + slope * (s - float(s_old.mean()))


def regression(s_old: np.ndarray, s_new: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Least squares from old to new scores, over the highest 5 % of new scores."""
    top = s_new >= np.sort(s_new)[int(0.95 * len(s_new))]
    x, y = s_old[top], s_new[top]
    slope = float(((x - x.mean()) * (y - y.mean())).sum() / np.square(x - x.mean()).sum())
    return lambda s: float(y.mean()) + slope * (s - float(x.mean()))


def rank_matching(s_old: np.ndarray, s_new: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """The new score of the same rank, linear between quantiles and beyond the highest."""
    shares = np.concatenate([np.linspace(0, 0.99, 34), 1 - np.geomspace(0.01, 10 / len(s_old), 16)[1:]])
    x, y = (np.quantile(scores, shares) for scores in (s_old, s_new))
    rising = np.concatenate([[True], np.diff(x) > 1e-9])
    x, y = x[rising], y[rising]
    slope = (y[-1] - y[-8]) / (x[-1] - x[-8])

    def matched(s: np.ndarray) -> np.ndarray:
        return (np.interp(s, x, y) + slope * np.maximum(0, s - x[-1])).astype(np.float32)

    return matched


def report(split: Split, part: str, rows: list[dict[str, Any]]) -> None:
    print(f"seed {split.seed}, {part}, {rows[0]['pairs']} pairs; re-embedded {100 * split.reembedded:.1f} %")
    for row in rows:
        name = row.get("rule", row.get("kind"))
        kept = f"{100 * row['top1']:.1f} % ({100 * row['top1'] / split.reembedded:.1f} % kept)"
        shown = "".join(f", exposure at {k} {ratio:.2f}" for k, ratio in row.get("exposure", {}).items())
        print(f"  {name:20s} {kept}{shown}" + (f", chose {row['chosen']}" if "chosen" in row else ""), flush=True)


if __name__ == "__main__":
    main()
