"""What each of two processes does in test_engine_ranks.py; run as a script, with the variables torchrun would set."""

import sys
from pathlib import Path

import torch

from holdfast.train.data import ImageSet, load_split
from holdfast.train.data.device_images import DeviceImages
from holdfast.train.encoders import Encoder, Preprocess, build_backbone
from holdfast.train.engine import FitOptions, KeptFeatures, buffer_features, fit
from holdfast.train.engine.fit import prepare_step
from holdfast.train.engine.ranks import ALONE, Ranks, torchrun_ranks
from holdfast.train.methods import METHODS, Method
from holdfast.train.scenarios import cl2r

STEPS = 3
CASES = {
    **{f"{name}-plain": (name, "plain", {}) for name in METHODS},
    "simplex_hoc-lenet": ("simplex_hoc", "lenet_plus_plus", {}),
    "er-apart": ("er", "plain", {"gather": False}),
    "simplex_hoc-apart": ("simplex_hoc", "plain", {"gather": False}),
    "simplex_hoc-small": ("simplex_hoc", "small", {}),
    "advbct-small-apart": ("advbct", "small", {"gather": False}),
    "simplex_hoc-small-streamed": ("simplex_hoc", "small", {"images": "stream"}),
    "er-small-own-statistics": ("er", "small", {"sync_bn": False}),
    "lce_maps-plain": ("lce", "plain", {}),
    "lce_maps-apart": ("lce", "plain", {"gather": False}),
}


def make_method(case: str) -> Method:
    if case.startswith("lce_maps"):
        return METHODS["lce"](transformations=True)
    name = CASES[case][0]
    return METHODS[name](**({"slots": 8} if name.startswith("simplex") else {}))


class Plain(torch.nn.Sequential):
    """No batch norm, and quick."""

    feature_dim = 32

    def __init__(self):
        layers = torch.nn.Conv2d(1, 8, 3, stride=2), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(392, 32)
        super().__init__(*layers)


def glyphs() -> ImageSet:
    return load_split("glyphs", "train", size=16, train_classes=6, test_classes=3, per_class_train=8)


def make_step(case: str, images: ImageSet, ranks: Ranks = ALONE):
    _, backbone, changes = CASES[case]
    options = FitOptions(epochs=4, batch_size=8, lr=0.01, crop_padding=1, **changes)
    torch.manual_seed(0)
    preprocess = Preprocess(size=16, mean=(0.2,), std=(0.3,), colour="grey")
    method = make_method(case)
    arguments = {"width": 8} if backbone == "small" else {"in_channels": 1}
    networks = [Plain() if backbone == "plain" else build_backbone(backbone, **arguments) for _ in range(2)]
    new, old = (Encoder(it, method.feature_dim(it.feature_dim), preprocess=preprocess) for it in networks)
    sizes = {"initial": 3, "tasks": 2, "buffer_per_class": 2}
    tasks = cl2r(images.labels, images.class_names, num_slots=method.num_slots, **sizes).tasks
    first = FitOptions(epochs=1, batch_size=8, lr=0.01)
    fit(old, method, tasks[0], images, options=first)  # what later tasks need: centres, radii; the same on every rank
    placed = DeviceImages(images)
    kept = KeptFeatures(tasks[1], placed, [buffer_features(old, placed, tasks[1].buffer_indices)])
    step, _ = prepare_step(new, method, tasks[1], images, old=old, kept=kept, options=options, ranks=ranks)
    if options.images == "stream":
        from holdfast.train.engine.fit import _coming_rows

        return step, step.source.prefetched(step, _coming_rows(tasks[1], options, step.shard, 0), 0)
    return step, step


def after_steps(case: str, images: ImageSet, ranks: Ranks = ALONE) -> dict[str, torch.Tensor]:
    step, run = make_step(case, images, ranks)
    for _ in range(STEPS):
        run()
    weights = {name: tensor.clone() for name, tensor in step.encoder.state_dict().items()}
    return (
        weights
        | {f"method.{n}": t.clone() for n, t in step.method.state_dict().items()}
        | {"sums": step.loss_sums.sums}
    )


def main(out: Path, fail: bool) -> None:
    images = glyphs()
    with torchrun_ranks("cpu") as ranks:
        if fail:
            _, run = make_step("er-plain", images, ranks)
            for number in range(100):
                if number == 2 and not ranks.first:
                    raise ValueError("broken on purpose")
                run()
        found = {case: after_steps(case, images, ranks) for case in CASES}
        step, run = make_step("simplex_hoc-apart", images, ranks)
        run()
        found["simplex_hoc-apart-first"] = step.loss_sums.sums
        torch.save(found, out / f"rank{ranks.rank}.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:] == ["fail"])
