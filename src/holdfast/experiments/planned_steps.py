"""How many optimiser steps runs take, known before they begin."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from holdfast.data.sampler import steps_per_epoch
from holdfast.experiments.assemble import SharedData
from holdfast.run_folder import RunFolder
from holdfast.scenarios import SCENARIOS, ModelCard, Scenario

if TYPE_CHECKING:
    from holdfast.experiments.sweep import PlannedRun


def steps_per_task(scenario: Scenario, *, epochs: int, batch_size: int) -> list[int]:
    return [
        epochs * steps_per_epoch(len(task.new_indices), len(task.buffer_indices), batch_size) for task in scenario.tasks
    ]


def laid_out(section: Mapping[str, Any], labels: np.ndarray, class_names: Sequence[str]) -> Scenario:
    """The scenario of a recipe's section as far as it matters to steps: seed, slots and models brought in do not."""
    options = {key: value for key, value in section.items() if value is not None}
    if "model" in options:
        options["models"] = {name: ModelCard(1) for name in (options["model"], *options["replace_with"])}
    return SCENARIOS[options.pop("name")](labels, class_names, **options)


def steps_ahead(runs: "Sequence[PlannedRun]", folder: Path, shared: SharedData) -> dict[str, int]:
    """Per run what its tasks without a model in ``folder`` take; 0 where it is finished or cannot even be laid out."""
    known: dict[str, list[int]] = {}
    ahead = {}
    for run in runs:
        target = RunFolder(folder / run.name)
        if target.metrics.exists():
            ahead[run.name] = 0
            continue
        recipe = run.recipe
        size = {key: recipe["train"][key] for key in ("epochs", "batch_size")}
        kind = json.dumps([recipe["data"], recipe["scenario"], size], sort_keys=True, default=str)
        if kind not in known:
            try:
                train = shared.open_set(recipe).train
                scenario = laid_out(recipe["scenario"], train.labels, train.class_names)
                known[kind] = steps_per_task(scenario, **size)
            except Exception:  # whatever it is, the run comes to it too, and says so
                known[kind] = []
        ahead[run.name] = sum(
            steps for number, steps in enumerate(known[kind], start=1) if not target.model(number).is_dir()
        )
    return ahead
