"""The ways to train five versions: their method, their settings, the tries that settings are chosen from, and a run.

All train the same head, x + W x that begins as the identity, for the same number of epochs on the same items.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from holdfast import Encoder, FitOptions, VectorInput, build_backbone
from holdfast.data.device_images import place_images
from holdfast.errors import HoldfastError
from holdfast.events import Event, TaskBegan, TaskEnded
from holdfast.lifecycle.settings import HEAD_FIT, VECTOR_HEAD
from holdfast.methods import Method, method_class
from holdfast.run_folder import RunFolder
from holdfast.space_map import SpaceMap
from holdfast.storage import read_json, write_json
from holdfast.training import RunControl, ScenarioSetup, train_scenario
from papers.quarters.study_data import VERSIONS, StudyData, scenario


@dataclass(frozen=True)
class Settings:
    """Settings of one training.

    method: name of the method.
    options: options of the method that differ from its defaults.
    lr: learning rate.
    """

    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    lr: float = HEAD_FIT.lr

    def to_json(self) -> dict[str, Any]:
        return {"method": self.method, "options": dict(self.options), "lr": self.lr}

    def fit_options(self, seed: int) -> FitOptions:
        """Those of ``holdfast start`` and ``update`` on vectors, with this rate."""
        return FitOptions(
            epochs=HEAD_FIT.epochs, batch_size=HEAD_FIT.batch_size, optimizer=HEAD_FIT.optimizer, lr=self.lr,
            weight_decay=HEAD_FIT.weight_decay, schedule=HEAD_FIT.schedule, crop_padding=0, flip=False, seed=seed,
        )  # fmt: skip

    def build_method(self, width: int) -> Method:
        return method_class(self.method)(**self.method_options(width))

    def method_options(self, width: int) -> dict[str, Any]:
        """The options, with one slot more than the vectors are wide for a simplex of their dimension."""
        options = dict(self.options)
        return {**options, "slots": width + 1} if self.needs_slots else options

    @property
    def needs_slots(self) -> bool:
        return self.method.startswith("simplex")


RAW, PLAIN, OURS, DISTILLATION, HOC, CVS, FAN = "raw", "plain", "ours", "distillation", "hoc", "cvs", "fan"
OWN_DISTILLATION = "papers.quarters.cosine_distillation:CosineDistillation"


def _tries(method: str, rates: Sequence[float], *options: Mapping[str, Any]) -> tuple[Settings, ...]:
    return tuple(Settings(method, given, rate) for rate in rates for given in options)


TRIES: dict[str, tuple[Settings, ...]] = {
    RAW: (Settings("none"),),
    PLAIN: _tries("cosine_hoc", (0.05, 0.1), *({"contrast": 0.0, "scale": scale} for scale in (16.0, 32.0))),
    OURS: (Settings("cosine_hoc", {"contrast": 1.0, "rho": 5.0, "scale": 16.0}),),
    DISTILLATION: _tries(
        OWN_DISTILLATION, (0.05, 0.1), *({"scale": 16.0, "features_weight": weight} for weight in (1.0, 5.0))
    ),
    HOC: _tries(
        "simplex_hoc",
        (0.02, 0.05),
        *({"lambda_": weight, "length": 16.0, "first_length": 16.0} for weight in (0.1, 0.3)),
    ),
    CVS: _tries(
        "cvs",
        (0.02, 0.05),
        *({"scale": 16.0, "coherence": pull, "centre": centre} for pull, centre in ((1.0, 0.1), (10.0, 1.0))),
    ),
}
"""Training -> the settings that are tried on validation classes. Ours has the defaults of ``holdfast update`` alone.

FAN trains its networks as distillation does, so it has the settings chosen for that.
"""

MAP_WIDTH = 1280
"""Hidden width of FAN's map. FAN's default, 16 times the feature size, takes minutes per update on a CPU."""


def of_fan(distillation: Settings) -> Settings:
    return Settings(OWN_DISTILLATION, {**distillation.options, "map_width": MAP_WIDTH}, distillation.lr)


@dataclass(frozen=True)
class Trained:
    """The five versions of one training.

    encoders: oldest first.
    maps: for each version the map from the version before into its space, or None; FAN trains them.
    seconds: wall time of the training of each version.
    """

    encoders: Sequence[Encoder]
    maps: Sequence[SpaceMap | None]
    seconds: Sequence[float]

    def embedded(self, items: np.ndarray) -> list[torch.Tensor]:
        """Unit vectors of the items under each version."""
        return [encoder.encode(items) for encoder in self.encoders]


def head_encoder(data: StudyData, settings: Settings) -> Encoder:
    """A head that begins as the identity, for vectors. A study of images needs a network here and its rates."""
    if not data.holds_vectors:
        raise HoldfastError(f"{data.name}: holds images, and only heads on vectors are trained so far")
    width = int(data.items.shape[1])
    method = settings.build_method(width)
    backbone = build_backbone(VECTOR_HEAD, in_channels=width)
    return Encoder.for_method(method, backbone=backbone, preprocess=VectorInput(width, unit=True))


def train(data: StudyData, settings: Settings, seed: int, folder: Path, device: torch.device) -> Trained:
    """Train the versions that are not in ``folder`` yet, and read all of them. Method "none" trains nothing."""
    width = int(data.items.shape[1])
    if settings.method == "none":
        encoder = Encoder(build_backbone("identity", in_channels=width), preprocess=VectorInput(width, unit=True))
        return Trained([encoder] * VERSIONS, [None] * VERSIONS, [0.0] * VERSIONS)
    images, tasks = scenario(data, seed, width + 1 if settings.needs_slots else None)
    options, run = settings.fit_options(seed), RunFolder(folder)

    def make_encoder() -> Encoder:
        return head_encoder(data, settings)

    setup = ScenarioSetup(make_encoder, lambda: settings.build_method(width), options)
    with run.locked():
        _refuse_other_settings(folder / "settings.json", settings)
        train_scenario(
            tasks,
            place_images(images, device),
            run,
            setup,
            control=RunControl(on_event=_Clock(folder / "seconds.json")),
        )
    numbers = range(1, len(tasks) + 1)
    maps = [SpaceMap.load(path) if (path := run.space_map(number)).exists() else None for number in numbers]
    encoders = [Encoder.from_pretrained(run.model(number), device=device) for number in numbers]
    return Trained(encoders, maps, list(read_json(folder / "seconds.json").values()))


def _refuse_other_settings(file: Path, settings: Settings) -> None:
    """Refuse a folder with models of other settings."""
    if file.exists() and read_json(file) != settings.to_json():
        raise HoldfastError(f"{file.parent}: holds models with other settings; remove it or choose another --out")
    write_json(file, settings.to_json())


class _Clock:
    """Writes the wall time of each task to a file. A task that was interrupted has the time of its last part."""

    def __init__(self, file: Path) -> None:
        self.file, self.began = file, 0.0

    def __call__(self, event: Event) -> None:
        if isinstance(event, TaskBegan):
            self.began = time.perf_counter()
        elif isinstance(event, TaskEnded):
            known = read_json(self.file) if self.file.exists() else {}
            write_json(self.file, {**known, str(event.task): round(time.perf_counter() - self.began, 3)})
