"""Compact features against full ones: bytes of the gallery, exactness across models, time of a search.

    python bench/compact.py [--slots 22000] [--backbone-dim 768] [--items 4000] [--queries 1000] [--json FILE]
    python bench/compact.py --data DIR [--models OLD NEW] [--items 10000] [--queries 10000]

Without --data: random backbone features through two random projections that have a part in common, at the paper's large
scale. With --data: CIFAR-10 test images as the gallery and training images as the queries, through two models
in folders or, where none are given, through a ResNet-18 and a ResNet-32 with random weights into 1024 slots.
Scores of the newer model's queries on the older one's gallery are compared; "rank error" is the largest difference,
over the first ten places, between the score that belongs there and that of the item found: below 1e-5 the two searches
agree up to swaps of equals.

A compact gallery needs its model's basis beside it, full size x backbone size: "times_smaller" is what an item shrinks
by, "times_smaller_with_basis" what this gallery does, and "items_for_times" how many items one needs to be --times
smaller with its basis counted; None where an item alone does not shrink by as much.
"""

import argparse
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from timing import synchronize, timed
from torch import Tensor

from holdfast.core.environment import describe
from holdfast.core.storage import write_json
from holdfast.train.data import load_split
from holdfast.train.devices import resolve_device
from holdfast.train.encoders import (
    Encoder,
    Preprocess,
    build_backbone,
    change_basis,
    compact_basis,
    extract,
    to_compact,
)
from holdfast.train.geometry import unit
from holdfast.vectors import nearest


class Side(NamedTuple):
    """Unit features (N x full size), the basis of their model (full size x backbone size), and what model it is."""

    features: Tensor
    basis: Tensor
    model: dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description="Compact features against full ones.")
    parser.add_argument("--slots", type=int, default=22_000)
    parser.add_argument("--backbone-dim", type=int, default=768)
    parser.add_argument("--items", type=int, default=4_000)
    parser.add_argument("--queries", type=int, default=1_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--data", help="where CIFAR-10 is: measure on real images")
    parser.add_argument("--models", nargs=2, metavar=("OLD", "NEW"), help="two model folders")
    parser.add_argument("--times", type=float, default=25.0, help="from how many items a gallery is so much smaller")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--json", help="also write the figures to this file")
    options = parser.parse_args()
    device = resolve_device(options.device)
    environment = describe(str(device))
    print(f"{environment['gpu'] or environment['processor']}, torch {torch.__version__}")
    stored, asking = real(options, device) if options.data else made_up(options, device)
    (gallery, old, _), (query, new, _) = stored, asking
    for role, side in (("gallery", stored), ("queries", asking)):
        print(f"{role:18} {', '.join(f'{key} {value}' for key, value in side.model.items())}")
    started = time.perf_counter()
    small = to_compact(gallery, old)
    carried = change_basis(to_compact(query, new), new, old)
    synchronize(device)
    found = {
        "items": len(gallery),
        "queries": len(query),
        "full_numbers": gallery.shape[1],
        "stored_numbers": small.shape[1],
        "full_bytes": gallery.nbytes,
        "stored_bytes": small.nbytes,
        "times_smaller": gallery.nbytes / small.nbytes,
        "basis_bytes": old.nbytes,
        "times_smaller_with_basis": gallery.nbytes / (small.nbytes + old.nbytes),
        "times": options.times,
        "items_for_times": items_for(options.times, gallery.shape[1], small.shape[1]),
        "compact_s": time.perf_counter() - started,
        **errors(query, gallery, carried, small),
        "search_full_ms": median_ms(lambda: nearest(query, gallery, 10, device=device), options.repeats, device),
        "search_stored_ms": median_ms(lambda: nearest(carried, small, 10, device=device), options.repeats, device),
    }
    for name, value in found.items():
        print(f"{name:24} {shown(value)}")
    if options.json:
        asked = {
            "real_images": bool(options.data),
            "trained_models": bool(options.models),
            "models": [named(folder) for folder in options.models] if options.models else None,
            "repeats": options.repeats,
        }
        sides = {"gallery": stored.model, "queries": asking.model}
        record = {"bench": "compact", "environment": environment, "options": asked, "sides": sides, "found": found}
        write_json(Path(options.json), record)


def shown(value: float | int | None) -> str:
    if value is None:
        return "none: an item alone does not shrink by as much"
    return f"{value:,.4g}" if isinstance(value, float) and value > 1e-2 else f"{value:,}"


def named(folder: str) -> str:
    """A model folder's own name, without where it lies on this machine."""
    return Path(folder).resolve().name


def items_for(times: float, full: int, stored: int) -> int | None:
    """The least N with N full >= times (N stored + full stored): a gallery and its basis are so much smaller."""
    gain = full - times * stored
    return math.ceil(times * full * stored / gain) if gain > 0 else None


def made_up(options: argparse.Namespace, device: torch.device) -> tuple[Side, Side]:
    torch.manual_seed(0)
    sides = []
    shape = (options.slots - 1, options.backbone_dim)
    common = torch.randn(shape)
    for count in (options.items, options.queries):
        projection = (common + torch.randn(shape)) / options.backbone_dim**0.5
        h = torch.relu(torch.randn(count, options.backbone_dim))
        basis = torch.linalg.qr(projection.double()).Q.float()
        model = {"backbone": "random numbers", "feature_dim": options.backbone_dim, "dim": shape[0]}
        sides.append(Side(unit(h.to(device) @ projection.T.to(device)), basis.to(device), model))
    return sides[0], sides[1]


def real(options: argparse.Namespace, device: torch.device) -> tuple[Side, Side]:
    sides = []
    for number, (split, count) in enumerate((("test", options.items), ("train", options.queries))):
        images = load_split("cifar10", split, options.data, per_class=-(-count // 10))
        encoder = Encoder.from_pretrained(options.models[number]) if options.models else random_encoder(number)
        basis = compact_basis(encoder)
        if basis is None:
            raise SystemExit("a model's full features are no larger than its backbone's: nothing to compact")
        spec = getattr(encoder.backbone, "backbone_spec", None) or {"name": type(encoder.backbone).__name__}
        model = {"backbone": named(spec["name"]), "feature_dim": encoder.feature_dim, "dim": encoder.dim}
        features = torch.from_numpy(extract(encoder, images, device=device)).to(device)
        sides.append(Side(features, basis.to(device), model))
    return sides[0], sides[1]


def random_encoder(number: int) -> Encoder:
    torch.manual_seed(number)
    preprocess = Preprocess(size=32, mean=(0.5071, 0.4865, 0.4409), std=(0.2673, 0.2564, 0.2762))
    return Encoder(build_backbone(("resnet18", "resnet32")[number]), 1023, preprocess=preprocess).eval()


def errors(query: Tensor, gallery: Tensor, carried: Tensor, small: Tensor) -> dict[str, float]:
    """The largest difference of any score, and the largest at one of the first ten places."""
    worst = rank = 0.0
    device = query.device
    best, found = (
        torch.from_numpy(part).to(device)
        for part in (
            nearest(query, gallery, 10, device=device).scores,
            nearest(carried, small, 10, device=device).indices,
        )
    )
    for start in range(0, len(query), 1000):
        some = slice(start, start + 1000)
        full = query[some] @ gallery.T
        worst = max(worst, float((full - carried[some] @ small.T).abs().max()))
        rank = max(rank, float((full.gather(1, found[some]) - best[some]).abs().max()))
    return {"score_error": worst, "rank_error": rank}


def median_ms(call: Callable[[], object], repeats: int, device: torch.device) -> float:
    """After one call to warm up."""
    return statistics.median([timed(call, 1, device) for _ in range(repeats + 1)][1:])


if __name__ == "__main__":
    main()
