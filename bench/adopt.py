"""A store filled by a network that never saw a simplex is adopted, and new models are trained against its vectors.

    python bench/adopt.py [--data glyphs|cifar] [--seeds 0 1 2] [--epochs 15] [--lambdas 0.3 0.5] [--json FILE]

The old model is trained by ER, a plain classifier, on a third of the training classes; its features of all training
images are what ``adopt`` gets, and its features of images of classes that no model is ever trained on are the store.
From here on the old network is not used. New models see all training classes:

    projection  d-Simplex-HOC held to the stored vectors through the adopted projection
    means       Means-HOC held to the stored vectors as they are
    bridge      ER alone, and the bridge that ``adopt`` fitted

``check`` judges the queries of each on the store as it is, whole classes drawn. ``adopt`` itself is given the plain new
model's features: whether the way it prefers is the one that wins after a whole training is part of what is printed.
CIFAR (old model on 33 classes of CIFAR100, store of CIFAR10) needs HOLDFAST_DATA and a GPU.
"""

import argparse
import os
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from timing import write_figures

from holdfast.checks import CheckResult, check
from holdfast.core.environment import describe
from holdfast.core.storage import without_nan
from holdfast.train.data import ImageSet, load_split
from holdfast.train.data.images import image_names, only_classes
from holdfast.train.encoders import Encoder, Preprocess, build_backbone, extract
from holdfast.train.engine import FitOptions, StoredReference, fit
from holdfast.train.methods import METHODS, Method
from holdfast.train.scenarios import SlotRegistry, Task, cl2r
from holdfast.train.versions import Adopted, adopt, read_adopted
from holdfast.train.versions.adoption_trial import STEPS
from holdfast.vectors import feature_set


def main() -> None:
    parser = argparse.ArgumentParser(description="Adopt the store of a plain classifier; train new models against it.")
    parser.add_argument("--data", choices=list(DATA), default="glyphs")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--lambdas", type=float, nargs="+", default=[0.3, 0.5])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--toy", action="store_true", help="so small that it shows nothing but that it runs")
    parser.add_argument("--json", help="also write the figures to this file")
    options = parser.parse_args()
    environment = describe(options.device)
    print(f"{environment['processor']}, {options.device}; {options.data}, top-1 in per cent")
    stories: list[dict[str, Any]] = []
    for seed in options.seeds:
        stories.append(Story(seed, options).told())
        if options.json:  # after each: a seed takes minutes
            found = without_nan({"load": os.getloadavg(), "stories": stories})
            write_figures(options.json, "adopt", environment, options, **found)


class Story:
    """One seed: the old model, its adoption, and every new model's check."""

    def __init__(self, seed: int, options: argparse.Namespace) -> None:
        self.seed, self.device, self.lambdas = seed, torch.device(options.device), options.lambdas
        read = toy if options.toy else DATA[options.data]
        self.train, self.query, self.gallery, self.backbone, self.options = read()
        self.steps = 10 if options.toy else STEPS
        self.options = replace(self.options, seed=seed, epochs=options.epochs or self.options.epochs)
        pixels = self.train.images.astype(np.float32).reshape(-1, self.train.images.shape[-1]) / 255
        colour = "grey" if self.train.images.shape[-1] == 1 else "rgb"
        self.preprocess = Preprocess(
            size=self.train.images.shape[1:3], mean=tuple(pixels.mean(0)), std=tuple(pixels.std(0)), colour=colour
        )

    def told(self) -> dict[str, Any]:
        third = only_classes(self.train, self.train.class_names[: self.train.num_classes // 3])
        old = self.trained(METHODS["er"](), third)
        plain = self.trained(METHODS["er"](), self.train)
        store, asked = self.features(old, self.gallery), self.features(old, self.query)
        with tempfile.TemporaryDirectory() as place:
            files = {name: Path(place) / f"{name}.npz" for name in ("old", "new")}
            labels = np.array(self.train.class_names)[self.train.labels]
            for name, model in (("old", old), ("new", plain)):
                ids = image_names(self.train)
                np.savez(files[name], features=extract(model, self.train, device=self.device), labels=labels, ids=ids)
            report = adopt(files["old"], out=None, new=files["new"], seed=self.seed, steps=self.steps)
            adopted = {}
            for way in ("projection", "means", "bridge"):
                adopt(files["old"], out=Path(place) / way, new=files["new"], way=way, seed=self.seed, steps=self.steps)
                adopted[way] = read_adopted(Path(place) / way)
            judged = self.judge(plain, adopted, store, asked)
        story = {"seed": self.seed, "adopt": report.as_json(), "checks": judged}
        self.show(story)
        return story

    def judge(self, plain: Encoder, adopted: dict[str, Adopted], store: Any, asked: Any) -> dict[str, Any]:
        ceiling = (self.features(plain, self.query), self.features(plain, self.gallery))
        bridge = adopted["bridge"].bridge
        assert bridge is not None
        bridged = feature_set("bridged", bridge(ceiling[0].rows.block(0, len(ceiling[0]))).numpy(), ceiling[0].labels)
        checks = {
            "new model as it is": check(store, asked, ceiling[0], ceiling[1], cluster_by_class=True),
            "bridge": check(store, asked, bridged, cluster_by_class=True),
        }
        for way, name in (("projection", "simplex_hoc"), ("means", "means_hoc")):
            here = adopted[way]
            reference = here.reference(image_names(self.train))
            for lambda_ in self.lambdas:
                if here.registry is None:
                    method = METHODS[name](dim=here.dim, lambda_=lambda_)
                else:
                    method = METHODS[name](slots=here.registry.num_slots, lambda_=lambda_)
                model = self.trained(method, self.train, reference=reference, registry=here.registry)
                z, own = (self.features(model, images) for images in (self.query, self.gallery))
                on_store = here.on_store(torch.from_numpy(z.rows.block(0, len(z)))).numpy()
                key = f"{way}, lambda {lambda_:g}"
                checks[key] = check(
                    store, asked, feature_set("new", on_store, z.labels), own_gallery(here, own), cluster_by_class=True
                )
                if here.registry is not None:
                    through = [
                        feature_set(
                            part.name, here.carried(torch.from_numpy(part.rows.block(0, len(part)))), part.labels
                        )
                        for part in (store, asked)
                    ]
                    checks[f"{key}, store projected"] = check(*through, z, own, cluster_by_class=True)
        return {name: record(result) for name, result in checks.items()}

    def trained(
        self,
        method: Method,
        images: ImageSet,
        *,
        reference: StoredReference | None = None,
        registry: SlotRegistry | None = None,
    ) -> Encoder:
        """A network from scratch on all classes of ``images``, held to stored vectors where they are given."""
        torch.manual_seed(self.seed)
        backbone = build_backbone(*self.backbone[:1], **self.backbone[1])
        encoder = Encoder.for_method(method, backbone=backbone, preprocess=self.preprocess)
        count = images.num_classes
        (task,) = cl2r(images.labels, images.class_names, num_slots=method.num_slots, initial=count, tasks=1).tasks
        fit(encoder.to(self.device), method, held(task, images, reference, registry), images, old=reference,
            options=self.options)  # fmt: skip
        return encoder.eval()

    def features(self, model: Encoder, images: ImageSet) -> Any:
        labels = np.array(images.class_names)[images.labels]
        return feature_set("features", extract(model, images, device=self.device), labels)

    def show(self, story: dict[str, Any]) -> None:
        report = story["adopt"]
        print(f"\nseed {self.seed}: adopt")
        for name in ("same_classes", "other_classes"):
            question = report[name]
            asked = f"{name.replace('_', ' ')}, {question['queries']} queries of {question['classes']} classes"
            alone = shown(question["new_alone"])
            print(f"  {asked}: as stored {shown(question['as_stored'])}; the new model alone {alone}")
            for way in report["ways"]:
                later = way[name]
                print(f"  {way['name']:<11} later {points(later['gain'])} {later['verdict']} {way['settings']}")
        for way in report["ways"]:
            if way["stored_gain"] is not None:
                print(f"  {way['name']:<11} stored {points(way['stored_gain'])}")
        print(f"  chosen: {report['chosen']} ({report['reason']})")
        print("  check of new models on the untouched store, 95 % intervals:")
        for name, found in story["checks"].items():
            print(f"  {name:<36} self {shown(found['self'])}  cross {shown(found['cross'])}  "
                  f"gain {points(found['gain'])}  {found['verdict']}")  # fmt: skip


def held(task: Task, images: ImageSet, reference: StoredReference | None, registry: SlotRegistry | None) -> Task:
    if reference is None:
        return task
    if registry is None:
        return replace(task, reference="loaded")
    slots = tuple(registry.slot(images.class_names[label]) for label in task.seen_classes)
    return replace(task, reference="loaded", registry=registry, slots=slots)


def own_gallery(adopted: Adopted, features: Any) -> Any:
    """The gallery embedded anew, as the queries are put to the store."""
    return feature_set(
        "own", adopted.on_store(torch.from_numpy(features.rows.block(0, len(features)))), features.labels
    )


def record(result: CheckResult) -> dict[str, Any]:
    parts = {
        "self": result.self_test,
        "cross": result.cross_test,
        "new_self": result.new_self_test,
        "gain": result.gain,
    }
    found = {name: None if value is None else asdict(value) for name, value in parts.items()}
    return {"verdict": result.verdict, "reason": result.reason, **found}


def shown(estimate: dict[str, float] | None) -> str:
    return "–" if estimate is None else f"{100 * estimate['value']:.1f}"


def points(estimate: dict[str, float]) -> str:
    return f"{100 * estimate['value']:+.1f} ({100 * estimate['low']:+.1f} to {100 * estimate['high']:+.1f})"


def glyphs() -> tuple[ImageSet, ImageSet, ImageSet, tuple[str, dict[str, Any]], FitOptions]:
    sizes = {"train_classes": 100, "test_classes": 150, "per_class_train": 50, "per_class_gallery": 10}
    sets = [load_split("glyphs", split, None, None, **sizes) for split in ("train", "query", "gallery")]
    options = FitOptions(epochs=15, batch_size=64, lr=0.3, crop_padding=2, flip=False)
    return sets[0], sets[1], sets[2], ("small", {"width": 32, "in_channels": 1}), options


def toy() -> tuple[ImageSet, ImageSet, ImageSet, tuple[str, dict[str, Any]], FitOptions]:
    sizes = {"size": 16, "train_classes": 24, "test_classes": 12, "per_class_train": 8, "per_class_gallery": 4}
    sets = [load_split("glyphs", split, None, None, **sizes) for split in ("train", "query", "gallery")]
    options = FitOptions(epochs=2, batch_size=32, lr=0.1, crop_padding=1, flip=False)
    return sets[0], sets[1], sets[2], ("small", {"width": 8, "in_channels": 1}), options


def cifar() -> tuple[ImageSet, ImageSet, ImageSet, tuple[str, dict[str, Any]], FitOptions]:
    train, query, gallery = (
        load_split(name, split, None, None)
        for name, split in (("cifar100", "train"), ("cifar10", "test"), ("cifar10", "train"))
    )
    return train, query, gallery, ("resnet32", {}), FitOptions(epochs=70, batch_size=128, precision="bf16")


DATA = {"glyphs": glyphs, "cifar": cifar}

if __name__ == "__main__":
    main()
