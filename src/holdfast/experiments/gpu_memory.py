"""How much of a GPU a run will take, found by trying its network once before anything is started."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch

from holdfast.data.augment import centre_crop
from holdfast.data.device_images import DeviceImages, StreamedImages
from holdfast.encoders import Encoder
from holdfast.encoders.compact import compact_dim
from holdfast.encoders.encode_loop import batch_size_for
from holdfast.encoders.extract import extract
from holdfast.experiments.assemble import Experiment
from holdfast.methods import Method
from holdfast.randomness import GLOBAL_GENERATOR
from holdfast.scenarios import Scenario
from holdfast.training import FitOptions

HEADROOM = 2.8
"""A captured graph keeps memory of its own beside what the eager first steps leave cached, and fused kernels keep more
for the way back: 2.64 times the plain step's peak was reserved for ResNet-32 (``results/bench/sweep-h200.json``)."""

PER_PROCESS = 700 * 2**20
"""What CUDA and its libraries keep for each further process, beside its copy of the images: assumed, not measured."""


PER_MAP = 5
"""Copies of what is trained on features: weights, Adam's two averages, and gradients twice, because the eager first
steps leave theirs cached and the captured graph has its own. Reckoned, not measured."""


def bytes_per_run(
    experiment: Experiment,
    images: DeviceImages | StreamedImages,
    test_batch: int | None = None,
    *,
    compact: bool = False,
) -> int:
    """What one run takes beside the shared images: a batch through its network, the old model, the momentum,
    what the buffer remembers, what is trained on features afterwards, and the features of the test images, for which it
    takes larger batches than for training.

    test_batch: how many test images at a time; None for as many as ``extract`` would take.
    compact: whether test features are stored at the backbone's size (``evaluation.compact``).
    Where models are brought in, the one that takes most.
    """
    run = (experiment, images, test_batch, compact)
    started = [task for task in experiment.scenario.tasks if task.start == "loaded"]
    brought_in = dict.fromkeys(task.model for task in started if task.model)
    if not brought_in:
        return _bytes_of(experiment.make_encoder, *run)
    return max(_bytes_of(partial(experiment.load_model, name), *run) for name in brought_in)


def _bytes_of(
    make_encoder: Callable[[], Encoder],
    experiment: Experiment,
    images: DeviceImages | StreamedImages,
    test_batch: int | None,
    compact: bool,
) -> int:
    options, scenario, data = experiment.options, experiment.scenario, experiment.data
    encoder = make_encoder().to(images.device).train()
    weights = sum(parameter.nbytes for parameter in encoder.parameters())
    views = 2 if experiment.make_method().reads_view else 1
    training = _peak(images.device, _train_on, encoder, images, options, views) + 3 * weights
    evaluation = _peak(images.device, _extract_from, encoder, experiment, images.device, test_batch)
    evaluation += bytes_of_vectors(encoder, len(data.query), len(data.gallery), len(scenario), compact=compact)
    evaluation += PER_MAP * bytes_on_features(experiment.make_method(), scenario, encoder.dim)
    remembered = bytes_remembered(experiment.make_method(), scenario, encoder.dim)
    del encoder
    torch.cuda.empty_cache()
    return int(HEADROOM * training) + remembered + evaluation + images.bytes_ahead(options.batch_size)


def bytes_of_vectors(encoder: Encoder, queries: int, gallery: int, models: int, *, compact: bool) -> int:
    """What the matrix keeps on the device: every model's gallery, one's queries, and of compact ones the bases."""
    size = compact_dim(encoder) if compact else encoder.dim
    bases = models * encoder.dim * size if size < encoder.dim else 0
    return 4 * ((queries + models * gallery) * size + bases)


def bytes_remembered(method: Method, scenario: Scenario, dim: int) -> int:
    """The table of what past models gave the buffer (``KeptFeatures``), at the task where it is largest; mostly 0."""
    if not method.reads_kept:
        return 0
    return max(4 * len(task.buffer_indices) * (task.number - 1) * dim for task in scenario.tasks)


def bytes_on_features(method: Method, scenario: Scenario, dim: int) -> int:
    """The weights that ``method`` trains on features of size ``dim`` once a task is done, as FAN does a map; mostly 0.

    The state of the random generator is left as it was.
    """
    later = next((task for task in scenario.tasks if task.reference == "previous"), None)
    if later is None:
        return 0
    with GLOBAL_GENERATOR, torch.random.fork_rng(devices=[]):
        method.begin(later, dim)  # for the shapes
    phase = method.feature_phase()
    return 0 if phase is None else sum(parameter.nbytes for parameter in phase.parameters)


def _train_on(encoder: Encoder, images: DeviceImages | StreamedImages, options: FitOptions, views: int) -> None:
    assert encoder.preprocess is not None
    some = torch.arange(min(options.batch_size, len(images)), device=images.device)
    with torch.autocast("cuda", torch.bfloat16, enabled=options.precision == "bf16"):
        x = encoder.preprocess.normalise(centre_crop(images[some], *encoder.preprocess.height_width))
        torch.stack([encoder(x).float().sum() for _ in range(views)]).sum().backward()


def _extract_from(encoder: Encoder, experiment: Experiment, device: torch.device, test_batch: int | None) -> None:
    assert encoder.preprocess is not None
    some = slice(test_batch or batch_size_for(device, encoder.preprocess.input_shape))
    query = experiment.data.query
    few = replace(query, images=query.images[some], labels=query.labels[some])
    extract(encoder, few, device=device, batch_size=test_batch)


def _peak(device: torch.device, work: Callable[..., None], *arguments: object) -> int:
    """The most that ``work`` had allocated on the device at a time, beside what was there before."""
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    work(*arguments)
    return torch.cuda.max_memory_allocated(device) - before


def how_many_fit(wanted: int, each: int, device: torch.device, *, beside: int = 0) -> int:
    """At most ``wanted`` runs of ``each`` bytes in nine tenths of what is free but for ``beside``.

    A single one may have the last tenth as well; 0 where not even that is enough.
    """
    free, _ = torch.cuda.mem_get_info(device)
    room = free - beside
    return max(0, min(wanted, int(0.9 * room / max(each, 1)))) or int(each <= room)
