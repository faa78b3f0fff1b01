"""How much of a GPU a run will take, found by trying its network once before anything is started."""

from collections.abc import Callable
from functools import partial

import torch

from holdfast.backbones import Encoder
from holdfast.data.device import DeviceImages
from holdfast.data.resized_crop import centre_crop
from holdfast.data.stream import StreamedImages
from holdfast.recipes.assemble import Experiment

HEADROOM = 2.0
"""A captured graph keeps memory of its own beside what the eager first steps and the evaluation leave cached."""


def bytes_per_run(experiment: Experiment, images: DeviceImages | StreamedImages) -> int:
    """What one run takes beside the shared images: a batch through its network, the old model, the momentum.

    Where models are brought in, the one that takes most.
    """
    brought_in = dict.fromkeys(task.model for task in experiment.scenario.tasks if task.model)
    if not brought_in:
        return _bytes_of(experiment.make_encoder, experiment, images)
    return max(_bytes_of(partial(experiment.load_model, name), experiment, images) for name in brought_in)


def _bytes_of(
    make_encoder: Callable[[], Encoder], experiment: Experiment, images: DeviceImages | StreamedImages
) -> int:
    device, options = images.device, experiment.options
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    encoder = make_encoder().to(device).train()
    assert encoder.preprocess is not None
    some = torch.arange(min(options.batch_size, len(images)), device=device)
    with torch.autocast("cuda", torch.bfloat16, enabled=options.precision == "bf16"):
        x = encoder.preprocess.normalise(centre_crop(images[some], *encoder.preprocess.height_width))
        views = 2 if experiment.make_method().reads_view else 1
        torch.stack([encoder(x).float().sum() for _ in range(views)]).sum().backward()
    weights = sum(parameter.nbytes for parameter in encoder.parameters())
    peak = torch.cuda.max_memory_allocated(device) - before + 2 * weights
    del encoder
    torch.cuda.empty_cache()
    return int(HEADROOM * peak) + images.bytes_ahead(options.batch_size)


def how_many_fit(wanted: int, each: int, device: torch.device) -> int:
    """At most ``wanted`` runs of ``each`` bytes in nine tenths of what is free; at least one."""
    free, _ = torch.cuda.mem_get_info(device)
    return max(1, min(wanted, int(0.9 * free / max(each, 1))))
