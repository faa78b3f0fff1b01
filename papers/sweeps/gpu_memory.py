"""Predict the GPU memory of a run by trying its network once before anything is started."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch

from holdfast.train.data.augment import centre_crop
from holdfast.train.data.device_images import Images
from holdfast.train.encoders import Encoder
from holdfast.train.encoders.compact import compact_dim
from holdfast.train.encoders.encode_loop import batch_size_for
from holdfast.train.encoders.extract import extract
from holdfast.train.engine import FitOptions
from holdfast.train.experiments.assemble import Experiment
from holdfast.train.methods import Method
from holdfast.train.randomness import GENERATOR_LOCK
from holdfast.train.scenarios import Scenario

HEADROOM = 2.8
"""Memory reserved for training, relative to the peak of a plain step.

A captured graph has its own memory besides what the eager first steps leave cached, and fused kernels keep more for
the backward pass. Measured: 2.64 for ResNet-32 (``results/bench/sweep-h200.json``)."""

PER_PROCESS = 700 * 2**20
"""Bytes of CUDA and its libraries in each further process, besides its images. Assumed, not measured."""

PER_MAP = 5
"""Copies of the weights that are trained on features: the weights, Adam's two averages, and two gradients, because the
eager first steps leave theirs cached and the captured graph has its own. Calculated, not measured."""


def bytes_per_run(
    experiment: Experiment,
    images: Images,
    test_batch: int | None = None,
    *,
    compact: bool = False,
) -> int:
    """Bytes that one run takes on the GPU, besides the shared images.

    Counted are: a training batch through the network, the old model and the momentum; features kept for the buffer;
    weights trained on features; and the features of the test images. If the scenario names pre-trained models, the
    largest of them counts.

    test_batch: test images at a time; None for the default of ``extract``.
    compact: whether test features are stored at the backbone's size (``evaluation.compact``).
    """
    run = (experiment, images, test_batch, compact)
    started = [task for task in experiment.scenario.tasks if task.start == "loaded"]
    pretrained = dict.fromkeys(task.model for task in started if task.model)
    if not pretrained:
        return _bytes_of(experiment.make_encoder, *run)
    return max(_bytes_of(partial(experiment.load_model, name), *run) for name in pretrained)


def _bytes_of(
    make_encoder: Callable[[], Encoder],
    experiment: Experiment,
    images: Images,
    test_batch: int | None,
    compact: bool,
) -> int:
    options, scenario, data = experiment.options, experiment.scenario, experiment.data
    encoder = make_encoder().to(images.device).train()
    weights = sum(parameter.nbytes for parameter in encoder.parameters())
    views = 2 if experiment.make_method().reads_view else 1
    training = _peak(images.device, _train_on, encoder, images, options, views) + 3 * weights
    evaluation = _peak(images.device, _extract_from, encoder, experiment, images.device, test_batch)
    evaluation += matrix_feature_bytes(encoder, len(data.query), len(data.gallery), len(scenario), compact=compact)
    evaluation += PER_MAP * feature_phase_bytes(experiment.make_method(), scenario, encoder.dim)
    kept = kept_feature_bytes(experiment.make_method(), scenario, encoder.dim)
    del encoder
    torch.cuda.empty_cache()
    return int(HEADROOM * training) + kept + evaluation + images.prefetch_bytes(options.batch_size)


def matrix_feature_bytes(encoder: Encoder, queries: int, gallery: int, models: int, *, compact: bool) -> int:
    """Bytes of the compatibility matrix: the galleries of all models, the queries of one, and bases if compact."""
    full = encoder.embedding_dim
    size = compact_dim(encoder) if compact else full
    bases = models * full * size if size < full else 0
    return 4 * ((queries + models * gallery) * size + bases)


def kept_feature_bytes(method: Method, scenario: Scenario, dim: int) -> int:
    """Bytes of the past models' features of the buffer (``KeptFeatures``) at the largest task; 0 for most methods."""
    if not method.reads_kept:
        return 0
    return max(4 * len(task.buffer_indices) * (task.number - 1) * dim for task in scenario.tasks)


def feature_phase_bytes(method: Method, scenario: Scenario, dim: int) -> int:
    """Bytes of the weights that ``method`` trains on features of size ``dim`` after a task, as FAN does; 0 for most.

    The state of the random generator is not changed.
    """
    later = next((task for task in scenario.tasks if task.reference == "previous"), None)
    if later is None:
        return 0
    with GENERATOR_LOCK, torch.random.fork_rng(devices=[]):
        method.begin(later, dim)  # for the shapes
    phase = method.feature_phase()
    return 0 if phase is None else sum(parameter.nbytes for parameter in phase.parameters)


def _train_on(encoder: Encoder, images: Images, options: FitOptions, views: int) -> None:
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
    """The peak of the bytes that ``work`` allocated on the device."""
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    work(*arguments)
    return torch.cuda.max_memory_allocated(device) - before


def how_many_fit(wanted: int, each: int, device: torch.device, *, beside: int = 0) -> int:
    """How many runs fit into 90 % of the free memory, at most ``wanted``; 0 if not even one fits.

    each: bytes of one run.
    beside: bytes of the free memory that are needed for something else.

    A single run may also use the last 10 %.
    """
    free, _ = torch.cuda.mem_get_info(device)
    available = free - beside
    return max(0, min(wanted, int(0.9 * available / max(each, 1)))) or int(each <= available)
