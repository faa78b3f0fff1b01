"""How often the items of each version of a gallery are shown, with its bridges, without them, and after re-embedding.

    python bench/old_items.py GALLERY QUERIES [--resamples 1000] [--threads 2] [--json FILE]

GALLERY: items of several versions, all with an image at hand. Copies are worked on; the gallery is only read.
QUERIES: a folder of images per class. Their labels are compared with those of the items, if these have any.

The newest model searches all versions exactly, ten hits per query, in three ways:

- bridged: as the gallery searches, with the bridges and score scales that ``register`` stored.
- plain: without bridges and scales. Queries are only converted to the basis of the version, and cosines are merged.
  Left out if the spaces of two versions cannot be compared.
- re-embedded: every item is embedded by the newest model first.

Printed for each version: its share of the items, its share of the first k places when everything is re-embedded, its
exposure ratio at 1 and 10 (its share of the places divided by that share) with an interval of 95 % from resampled
queries, and the ratio that ``register`` expected. For each way: the share of first hits of the right class, and
overlap@10 with the re-embedded search.
"""

import argparse
import os
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import torch
from timing import write_figures

from holdfast import Gallery
from holdfast.core.environment import describe
from holdfast.core.errors import HoldfastError
from holdfast.core.storage import without_nan
from holdfast.gallery import Version
from holdfast.gallery.version_models import BasisConverter
from holdfast.metrics.exposure import EXPOSURE_AT, exposure_ratio

FIRST = 10
BRIDGED, PLAIN, FULL = "bridged", "plain", "re-embedded"


def main() -> None:
    parser = argparse.ArgumentParser(description="How often the items of each version of a gallery are shown.")
    parser.add_argument("gallery", type=Path)
    parser.add_argument("queries", type=Path, help="a folder of images per class")
    parser.add_argument("--resamples", type=int, default=1000, help="of the queries, for the intervals")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", help="also write the figures to this file")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    environment, load = describe("cpu"), os.getloadavg()
    found = measure(options.gallery, options.queries, options.resamples)
    print_figures(found)
    if options.json:
        given = argparse.Namespace(resamples=options.resamples, threads=options.threads)
        write_figures(options.json, "old_items", environment, given, load=load, **without_nan(found))


def measure(gallery: Path, queries: Path, resamples: int = 1000) -> dict[str, Any]:
    """The figures of a gallery (a folder), with the images of ``queries`` (a folder of images per class)."""
    files = sorted(one for one in queries.glob("*/*") if one.is_file())
    if not files:
        raise HoldfastError(f"{queries}: no folders with images here")
    labels = np.array([one.parent.name for one in files])
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-bench-")))
        for name in ("mixed", "full"):
            shutil.copytree(gallery, root / name)
        mixed = stack.enter_context(Gallery.open(root / "mixed"))
        full = stack.enter_context(Gallery.open(root / "full"))
        newest = mixed.newest()
        vectors = [mixed.models.query_vector(file, None, newest) for file in files]
        hits = {BRIDGED: [ids(mixed.search(vector=one, k=FIRST, exact=True)) for one in vectors]}
        versions = [row["version"] for row in mixed.stats()["versions"] if row["items"]]
        if comparable(mixed, versions):
            hits[PLAIN] = [plain_search(mixed, one, versions) for one in vectors]
        moved = full.backfill(probes=0)
        if moved.share < 1:
            raise HoldfastError(f"{gallery}: some items have no image at hand and cannot be re-embedded")
        hits[FULL] = [ids(full.search(vector=one, k=FIRST, exact=True)) for one in vectors]
        known = mixed.get(sorted({name for rows in hits.values() for row in rows for name in row}))
        return figures(mixed, hits, known, labels, resamples)


def ids(hits: Sequence[Any]) -> list[str]:
    if len(hits) < FIRST:
        raise HoldfastError(f"the gallery holds fewer than {FIRST} items")
    return [hit.id for hit in hits]


def comparable(gallery: Gallery, versions: Sequence[int]) -> bool:
    """Whether the newest version's queries can be compared with all versions as they are."""
    newest = gallery.newest()
    incomparable = {record["version"] for record in newest.bridges if record["without"] is None}
    return not incomparable.intersection(versions)


def plain_search(gallery: Gallery, vector: np.ndarray, versions: Sequence[int]) -> list[str]:
    """The ids of the best items by plain cosine, without bridges and scales."""
    newest, converter = gallery.newest(), BasisConverter(gallery.models.basis_of)
    scored = []
    for number in versions:
        version: Version = gallery.models.version(number)
        (query,) = converter.convert(vector[None], newest, version)
        length = float(np.linalg.norm(query))  # what is outside the older version's span lowers all its cosines
        for hit in gallery.search(vector=query, version=number, indexed_by=number, k=FIRST, exact=True):
            scored.append((-length * hit.cosine, hit.id))
    return [name for _, name in sorted(scored)[:FIRST]]


def figures(
    gallery: Gallery, hits: dict[str, list[list[str]]], known: dict[str, Any], labels: np.ndarray, resamples: int
) -> dict[str, Any]:
    counts = {row["version"]: row["items"] for row in gallery.stats()["versions"] if row["items"]}
    of = {way: np.array([[known[name]["version"] for name in row] for row in rows]) for way, rows in hits.items()}
    record_of = {record["version"]: record for record in gallery.newest().bridges}
    draws = np.random.default_rng(0).integers(0, len(labels), (resamples, len(labels)))
    versions = []
    for number, count in counts.items():
        row: dict[str, Any] = {"version": number, "items": count, "share": count / sum(counts.values())}
        record = record_of.get(number, {})
        row["kind"], row["expected"] = record.get("kind"), record.get("exposure")
        row["expected_without"] = record.get("exposure_without")
        for k in EXPOSURE_AT:
            shares = {way: (found[:, :k] == number).mean(1) for way, found in of.items()}  # per query
            row[f"fair@{k}"] = shares[FULL].mean()
            for way in of:
                if way != FULL:
                    row[f"{way}@{k}"] = ratio_with_interval(shares[way], shares[FULL], draws)
        versions.append(row)
    ways = {}
    for way, rows in hits.items():
        right = [known[row[0]]["label"] == label for row, label in zip(rows, labels, strict=True)]
        overlap = [len(set(row) & set(fair)) / FIRST for row, fair in zip(rows, hits[FULL], strict=True)]
        ways[way] = {"accuracy": float(np.mean(right)), "overlap@10": float(np.mean(overlap))}
    return {"items": sum(counts.values()), "queries": len(labels), "ways": ways, "versions": versions}


def ratio_with_interval(shown: np.ndarray, fair: np.ndarray, draws: np.ndarray) -> dict[str, float]:
    """The exposure ratio of shares per query, and its interval of 95 % over resampled queries."""
    ratios = [exposure_ratio(shown[rows].mean(), fair[rows].mean()) for rows in draws]
    low, high = np.nanpercentile(ratios, [2.5, 97.5]) if len(ratios) else (float("nan"), float("nan"))
    return {"ratio": exposure_ratio(shown.mean(), fair.mean()), "low": float(low), "high": float(high)}


def print_figures(found: dict[str, Any]) -> None:
    print(f"{found['items']} items, {found['queries']} queries")
    for way, row in found["ways"].items():
        print(f"{way:12} accuracy {100 * row['accuracy']:5.1f} %   overlap@10 {100 * row['overlap@10']:5.1f} %")
    for row in found["versions"]:
        held = f"{100 * row['share']:.0f} % of the items"
        print(f"version {row['version']}: {held}; kind of bridge: {row['kind'] or 'no bridge'}")
        for k in EXPOSURE_AT:
            print(f"  first {k:2}: fair share {100 * row[f'fair@{k}']:5.1f} %; exposure ratio", end="")
            for way in (BRIDGED, PLAIN):
                if one := row.get(f"{way}@{k}"):
                    print(f" {way} {one['ratio']:.2f} ({one['low']:.2f} to {one['high']:.2f})", end="")
            expected = (row["expected"] or {}).get(str(k))
            print("" if expected is None else f", expected {expected:.2f}")


if __name__ == "__main__":
    main()
