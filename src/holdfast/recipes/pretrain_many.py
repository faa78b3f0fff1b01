"""Several models pre-trained side by side on one device."""

import itertools
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from holdfast.errors import HoldfastError
from holdfast.recipes.assemble import SharedData
from holdfast.recipes.failure import INTERRUPTED, failure_of
from holdfast.recipes.load import read_recipe
from holdfast.recipes.pretrain import pretrain
from holdfast.recipes.pretrain_schema import PretrainRecipe, check_pretrain_recipe
from holdfast.recipes.sweep import different_streams
from holdfast.run_folder import RunFolder
from holdfast.storage import write_text

Watch = Callable[[str, dict[str, Any]], None]


def plan_models(
    sources: Sequence[str],
    *,
    methods: Sequence[str] = (),
    backbones: Sequence[str] = (),
    classes: Sequence[int] = (),
    settings: Sequence[str] = (),
) -> dict[str, PretrainRecipe]:
    """Every combination, checked, by the folder it goes to; an empty list leaves what the recipe says."""
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
) -> dict[str, dict[str, Any] | HoldfastError]:
    """Train the models into ``folder``, at most ``parallel`` at a time; per model its record, or why it failed.

    On a GPU each thread has a stream of its own, which it keeps from model to model. A model that fails leaves the
    others alone, and its traceback beside its folder.
    """
    stop = threading.Event()
    streams = different_streams(lambda: torch.cuda.Stream(device), parallel) if device.type == "cuda" else []
    own = threading.local()  # with its stream a thread keeps the memory of its graphs

    def begin_thread() -> None:
        own.stream = streams.pop() if streams else None

    def one(name: str) -> dict[str, Any] | HoldfastError:
        def watch_one(event: dict[str, Any]) -> None:
            if stop.is_set():
                raise KeyboardInterrupt
            watch(name, event)

        try:
            with torch.cuda.stream(own.stream):  # which does nothing for None
                target = RunFolder(folder / name)
                return pretrain(planned[name], target, shared=shared, device=str(device), watch=watch_one)
        except KeyboardInterrupt:
            return HoldfastError(INTERRUPTED)
        except Exception as error:  # whatever it is, the other models go on
            write_text(folder / f"{name}-error.txt", traceback.format_exc())
            failure = failure_of(error)
            watch(name, {"event": "failed", "text": str(failure)})
            return failure

    with ThreadPoolExecutor(max_workers=len(streams) or parallel, initializer=begin_thread) as pool:
        try:
            return dict(zip(planned, pool.map(one, planned), strict=True))
        except KeyboardInterrupt:
            stop.set()  # each thread ends at its next event, behind its last checkpoint
            pool.shutdown(cancel_futures=True)
            raise
