"""Compact features against full ones: bytes of the gallery, exactness across models, time of a search.

    python bench/compact.py [--slots 22000] [--backbone-dim 768] [--items 4000] [--queries 1000] [--json FILE]
    python bench/compact.py --data DIR [--models OLD NEW] [--items 10000] [--queries 10000]

Without --data: random backbone features through two random projections that have a part in common, at the paper's large
scale. With --data: CIFAR-10 test images as the gallery and training images as the queries, through two models
in folders or, where none are given, through a ResNet-18 and a ResNet-32 with random weights into 1024 slots.
Scores of the newer model's queries on the older one's gallery are compared; "rank error" is the largest difference,
over the first ten places, between the score that belongs there and that of the item found: below 1e-5 the two searches
agree up to swaps of equals.
"""

import argparse
import json
import statistics
import time

import torch
from timing import synchronize
from torch import Tensor

from holdfast.backbones import Encoder, Preprocess, build_backbone
from holdfast.data import load_split
from holdfast.engine import resolve_device
from holdfast.environment import describe
from holdfast.features import carried_query, compact_basis, compacted, extract
from holdfast.geometry import nearest, unit


def main() -> None:
    parser = argparse.ArgumentParser(description="Compact features against full ones.")
    parser.add_argument("--slots", type=int, default=22_000)
    parser.add_argument("--backbone-dim", type=int, default=768)
    parser.add_argument("--items", type=int, default=4_000)
    parser.add_argument("--queries", type=int, default=1_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--data", help="where CIFAR-10 is: measure on real images")
    parser.add_argument("--models", nargs=2, metavar=("OLD", "NEW"), help="two model folders")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--json", help="also write the figures to this file")
    options = parser.parse_args()
    device = resolve_device(options.device)
    environment = describe(str(device))
    print(f"{environment['gpu'] or environment['processor']}, torch {torch.__version__}")
    (gallery, old), (query, new) = real(options, device) if options.data else made_up(options, device)
    started = time.perf_counter()
    small = compacted(gallery, old)
    carried = carried_query(compacted(query, new), new, old)
    synchronize(device)
    found = {
        "items": len(gallery),
        "queries": len(query),
        "full_numbers": gallery.shape[1],
        "stored_numbers": small.shape[1],
        "full_bytes": gallery.nbytes,
        "stored_bytes": small.nbytes,
        "times_smaller": gallery.nbytes / small.nbytes,
        "compact_s": time.perf_counter() - started,
        **errors(query, gallery, carried, small),
        "search_full_ms": timed(lambda: nearest(query, gallery, 10), options.repeats, device),
        "search_stored_ms": timed(lambda: nearest(carried, small, 10), options.repeats, device),
    }
    for name, value in found.items():
        print(f"{name:18} {value:,.4g}" if isinstance(value, float) and value > 1e-2 else f"{name:18} {value:,}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            asked = {
                "real_images": bool(options.data),
                "trained_models": bool(options.models),
                "repeats": options.repeats,
            }
            record = {"bench": "compact", "environment": environment, "options": asked, "found": found}
            json.dump(record, file, indent=2)
            file.write("\n")


def made_up(options: argparse.Namespace, device: torch.device) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Per side unit features and the basis of their model."""
    torch.manual_seed(0)
    sides = []
    shape = (options.slots - 1, options.backbone_dim)
    common = torch.randn(shape)
    for count in (options.items, options.queries):
        projection = (common + torch.randn(shape)) / options.backbone_dim**0.5
        h = torch.relu(torch.randn(count, options.backbone_dim))
        basis = torch.linalg.qr(projection.double()).Q.float()
        sides.append((unit(h.to(device) @ projection.T.to(device)), basis.to(device)))
    return sides[0], sides[1]


def real(options: argparse.Namespace, device: torch.device) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    sides = []
    for number, (split, count) in enumerate((("test", options.items), ("train", options.queries))):
        images = load_split("cifar10", split, options.data, per_class=-(-count // 10))
        encoder = Encoder.from_pretrained(options.models[number]) if options.models else random_encoder(number)
        basis = compact_basis(encoder)
        if basis is None:
            raise SystemExit("a model's full features are no larger than its backbone's: nothing to compact")
        sides.append((torch.from_numpy(extract(encoder, images, device=device)).to(device), basis.to(device)))
    return sides[0], sides[1]


def random_encoder(number: int) -> Encoder:
    torch.manual_seed(number)
    preprocess = Preprocess(size=32, mean=(0.5071, 0.4865, 0.4409), std=(0.2673, 0.2564, 0.2762))
    return Encoder(build_backbone(("resnet18", "resnet32")[number]), 1023, preprocess=preprocess).eval()


def errors(query: Tensor, gallery: Tensor, carried: Tensor, small: Tensor) -> dict[str, float]:
    """The largest difference of any score, and the largest at one of the first ten places."""
    worst = rank = 0.0
    best, found = nearest(query, gallery, 10).scores, nearest(carried, small, 10).indices
    for start in range(0, len(query), 1000):
        some = slice(start, start + 1000)
        full = query[some] @ gallery.T
        worst = max(worst, float((full - carried[some] @ small.T).abs().max()))
        rank = max(rank, float((full.gather(1, found[some]) - best[some]).abs().max()))
    return {"score_error": worst, "rank_error": rank}


def timed(call, repeats: int, device: torch.device) -> float:
    times = []
    for _ in range(repeats + 1):
        synchronize(device)
        started = time.perf_counter()
        call()
        synchronize(device)
        times.append(1000 * (time.perf_counter() - started))
    return statistics.median(times[1:])


if __name__ == "__main__":
    main()
