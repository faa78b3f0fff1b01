"""Pre-train models of several methods, networks and numbers of classes, several at a time."""

import itertools
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

import torch

import papers.networks
import papers.readers  # noqa: F401
from holdfast.core.errors import HoldfastError
from holdfast.core.run_folder import RunFolder
from holdfast.train.engine import Cancellation, RunControl
from holdfast.train.events import Watch
from holdfast.train.experiments.assemble import SharedData
from holdfast.train.experiments.load import read_recipe
from holdfast.train.experiments.pretrain import PretrainRecipe, check_pretrain_recipe, pretrain
from papers.sweeps.run_threads import Outcome, RunThreads


def plan_models(
    sources: Sequence[str],
    *,
    methods: Sequence[str] = (),
    backbones: Sequence[str] = (),
    classes: Sequence[int] = (),
    settings: Sequence[str] = (),
) -> dict[str, PretrainRecipe]:
    """Checked recipes of every combination, by the name of their folder.

    sources: recipe files or names of built-in recipes.
    methods, backbones, classes: values to combine; an empty list keeps the value of the recipe.
    settings: changes to every recipe, such as "train.epochs=10".
    """
    planned: dict[str, PretrainRecipe] = {}
    axes: tuple[Sequence[Any], ...] = (sources, methods or [None], backbones or [None], classes or [None])
    for source, method, backbone, count in itertools.product(*axes):
        own = [f"method.name={method}"] if method else []
        own += [f"backbone.name={backbone}"] if backbone else []
        own += [f"data.classes={count}"] if count is not None else []
        recipe = check_pretrain_recipe(read_recipe(source, [*own, *settings]))
        name = recipe.folder.as_posix()
        if name in planned:
            raise HoldfastError(f"{source}: two models would be called {name}; leave one of them out")
        planned[name] = recipe
    return planned


def pretrain_many(
    planned: Mapping[str, PretrainRecipe],
    folder: Path,
    *,
    shared: SharedData,
    device: torch.device,
    parallel: int,
    watch: Watch = lambda name, event: None,
) -> dict[str, Outcome]:
    """Train the models into ``folder``; returns by name the model's record, or the error of a failed one.

    planned: recipes by the name of their folder, as from ``plan_models``.
    parallel: how many models train at the same time.
    watch: called with (name, event) for every event of every model.

    A failed model does not affect the others; its traceback is written beside its folder.
    """
    with RunThreads(device, parallel, Cancellation()) as threads:

        def submit(name: str) -> Future[Outcome]:
            error_file = folder / f"{name}-error.txt"

            def work(control: RunControl) -> dict[str, Any]:
                target = RunFolder(folder / name)
                record = pretrain(planned[name], target, shared=shared, device=str(device), control=control)
                error_file.unlink(missing_ok=True)  # of an earlier attempt
                return record

            return threads.submit(work, on_event=partial(watch, name), error_file=error_file)

        return threads.results({name: submit(name) for name in planned})
