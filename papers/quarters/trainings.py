"""Train the five versions of one strategy, or read those that are there."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from holdfast import Encoder
from holdfast.core.errors import HoldfastError
from holdfast.core.run_folder import RunFolder
from holdfast.core.storage import read_json, write_json
from holdfast.train.data.device_images import place_images
from holdfast.train.engine import RunControl, ScenarioSetup, train_scenario
from holdfast.train.events import Event, TaskBegan, TaskEnded
from holdfast.train.space_map import SpaceMap
from papers.quarters.study_data import VERSIONS, StudyData, scenario
from papers.quarters.trainees import Settings, trainee_of

BATCH = 256
"""Items that are embedded at a time: several trainings share a GPU's memory."""


@dataclass(frozen=True)
class Trained:
    """The five versions of one training.

    encoders: oldest first.
    maps: for each version the map from the version before into its space, or None; FAN trains them.
    seconds: wall time of the training of each version.
    method_state: the file with the method's state after the last version.
    """

    encoders: Sequence[Encoder]
    maps: Sequence[SpaceMap | None]
    seconds: Sequence[float]
    method_state: Path = Path()

    def embedded(self, items: np.ndarray) -> list[torch.Tensor]:
        """Unit vectors of the items under each version. Versions that are one model are asked once."""
        found = {id(encoder): encoder.encode(items, batch_size=BATCH) for encoder in dict.fromkeys(self.encoders)}
        return [found[id(encoder)] for encoder in self.encoders]


def train(
    data: StudyData,
    settings: Settings,
    seed: int,
    folder: Path,
    device: torch.device,
) -> Trained:
    """Train the versions that are not in ``folder`` yet, and read all of them. Method "none" trains nothing."""
    trainee = trainee_of(data)
    width = trainee.width(data)
    if settings.method == "none":
        encoder = trainee.raw_encoder(data).to(device)
        return Trained([encoder] * VERSIONS, [None] * VERSIONS, [0.0] * VERSIONS)
    images, tasks = scenario(data, seed, settings.slots(width))
    options, run = trainee.fit_options(settings, seed, device), RunFolder(folder)
    trainee.new_backbone(
        width, settings
    )  # models of the network's own code can be read only after the code was named here

    def make_encoder() -> Encoder:
        return trainee.encoder(data, settings)

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
    numbers = range(1, VERSIONS + 1)
    maps = [SpaceMap.load(path) if (path := run.space_map(number)).exists() else None for number in numbers]
    encoders = [Encoder.from_pretrained(run.model(number), device=device) for number in numbers]
    seconds = list(read_json(folder / "seconds.json").values())
    return Trained(encoders, maps, seconds, run.method(VERSIONS))


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
