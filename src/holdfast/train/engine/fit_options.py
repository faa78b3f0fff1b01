"""Options of training that do not belong to a method."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch

from holdfast.core.errors import HoldfastError
from holdfast.train.data.device_images import Placement
from holdfast.train.data.sampler import Draw
from holdfast.train.methods.option_checks import check_choice, check_positive

Optimizer = Literal["sgd", "adamw"]
Schedule = Literal["step", "cosine", "constant"]
Precision = Literal["fp32", "bf16"]
Executor = str
EXECUTORS = ["auto", "eager", "compiled", "graph"]
"""Names of executors. ``register_kernels`` adds to them."""


@dataclass(frozen=True)
class FitOptions:
    """Optimisation, batches, augmentation and checkpoints of one task.

    epochs: default 70. An epoch has (new images + images of the buffer) / batch_size steps; if there is a buffer, half
        of each batch is new.
    batch_size: images per step; default 128.
    optimizer: "sgd" (default) or "adamw".
    lr: learning rate at the start of every task; default 0.1.
    lr_groups: factors of the learning rate by prefix of the encoder's parameter names, such as
        {"backbone.layer1": 0.1}. The longest prefix counts; parameters without one keep the rate. Default: none.
    momentum: of SGD; default 0.9.
    weight_decay: default 5e-4.
    decay_norms: whether weight decay includes parameters with fewer than two dimensions (biases, normalisation), as in
        the authors' code for CL2R. Their later code for IAM-CL2R leaves them out. Default True.
    schedule: "step" (default) multiplies the rate by ``decay`` at each of ``milestones``; "cosine" falls
        towards ``final_lr``; "constant".
    milestones: fractions of the epochs; default 50/70 and 64/70, as in the paper.
    decay: factor of the "step" schedule; default 0.1.
    final_lr: the rate that the "cosine" schedule would have in the epoch after the last; default 1e-5.
    warmup: share of the task's steps in which the rate rises evenly from 0 to that of the schedule; default 0.
    precision: "fp32" (default) or "bf16" autocast.
    draw: how batches are drawn (data/sampler.py). "walk" (default) takes half of a batch from the replay buffer, and
        goes through permutations of the images. "independent" draws each batch anew. "mixed" takes buffered and new
        images in proportion to their numbers.
    crop_padding: black pixels added around an image before a crop of its own size is cut; default 4.
    resized_crop: instead of that, the side in pixels to which random boxes are scaled; default 0, which is off.
    crop_scale: least and largest area of such a box, as fractions of the image; default (0.08, 1).
    crop_ratio: least and largest ratio of width to height of such a box; default (3/4, 4/3).
    flip: mirror images at random; default True.
    executor: how steps are executed (engine/executors.py). "auto" (default) is "graph" (a CUDA graph) on a GPU and
        "eager" elsewhere; both give the same bits. "compiled" uses torch.compile. Code outside the package can add
        executors with kernels of its own (``register_kernels``).
    images: where the training images are: "device", "stream" (copied to it batch by batch), or "auto" (default), which
        streams them if they do not fit.
    checkpoint_minutes: time between two checkpoints in the middle of a task; default 5.
    random_reference: give the first model of a scenario an old model of random weights to be compared with, as the
        authors' code does if no checkpoint is named. For methods that read an old model. Default False.
    seed: of weights, batches and augmentation; default 0.

    >>> from holdfast import FitOptions
    >>> options = FitOptions(epochs=5, optimizer="adamw", lr=1e-3, schedule="cosine")
    >>> options.batch_size, options.seed
    (128, 0)
    """

    epochs: int = 70
    batch_size: int = 128
    optimizer: Optimizer = "sgd"
    lr: float = 0.1
    lr_groups: dict[str, float] | None = None
    momentum: float = 0.9
    weight_decay: float = 5e-4
    decay_norms: bool = True
    schedule: Schedule = "step"
    milestones: tuple[float, ...] = (50 / 70, 64 / 70)
    decay: float = 0.1
    final_lr: float = 1e-5
    warmup: float = 0.0
    precision: Precision = "fp32"
    draw: Draw = "walk"
    crop_padding: int = 4
    resized_crop: int = 0
    crop_scale: tuple[float, float] = (0.08, 1.0)
    crop_ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: bool = True
    executor: Executor = "auto"
    images: Placement = "auto"
    checkpoint_minutes: float = 5.0
    random_reference: bool = False
    seed: int = 0

    def table(self) -> dict[str, Any]:
        """As the table ``train`` of a recipe, which names the seed elsewhere."""
        return {key: value for key, value in asdict(self).items() if key != "seed"}

    def __post_init__(self) -> None:
        for name, kinds in (
            ("optimizer", Optimizer),
            ("schedule", Schedule),
            ("precision", Precision),
            ("draw", Draw),
            ("images", Placement),
        ):
            check_choice(kinds, **{name: getattr(self, name)})
        if self.executor not in EXECUTORS:
            raise HoldfastError(f"executor must be one of {', '.join(EXECUTORS)}, got {self.executor!r}")
        least_values = {
            "epochs": 1,
            "batch_size": 2,
            "crop_padding": 0,
            "resized_crop": 0,
            "momentum": 0,
            "weight_decay": 0,
            "final_lr": 0,
            "checkpoint_minutes": 0,
            "seed": 0,
        }
        for name, least in least_values.items():
            if not getattr(self, name) >= least:
                raise HoldfastError(f"{name} must be at least {least}, got {getattr(self, name)}")
        if not all(0 < fraction < 1 for fraction in self.milestones):
            raise HoldfastError(
                "milestones must be fractions of the epochs, between 0 and 1 (50 of 70 is 0.7143), "
                f"got {list(self.milestones)}"
            )
        if not 0 <= self.warmup < 1:
            raise HoldfastError(f"warmup must be a share of the steps, from 0 to below 1, got {self.warmup}")
        check_positive(lr=self.lr, decay=self.decay)
        for prefix, factor in (self.lr_groups or {}).items():
            if not 0 < factor < float("inf"):
                raise HoldfastError(f"lr_groups: {prefix!r} must be a factor above 0, got {factor}; or freeze them")
        if self.resized_crop and self.crop_padding:
            raise HoldfastError("crop_padding and resized_crop cannot be combined; set one of them to 0")
        for name, most in (("crop_scale", 1.0), ("crop_ratio", float("inf"))):
            low, high = getattr(self, name)
            if not 0 < low <= high <= most:
                limit = "" if most == float("inf") else f" and at most {most:g}"
                raise HoldfastError(
                    f"{name} must be two numbers above 0{limit}, the smaller first, got [{low}, {high}]"
                )


OFF_FOR_VECTORS: dict[str, int | bool] = {"crop_padding": 0, "resized_crop": 0, "flip": False}
"""The augmentation options with the values that switch them off."""


def refuse_augmentation(options: Mapping[str, Any]) -> None:
    """Refuse image augmentation for training on vectors."""
    for name, off in OFF_FOR_VECTORS.items():
        if options[name] != off:
            raise HoldfastError(f"{name} is for images, and these are vectors; set it to {str(off).lower()}")


def emulates_bf16(device: torch.device) -> bool:
    """Whether ``device`` is a CPU without bf16 instructions, where torch computes bf16 many times slower than float32.

    False if torch cannot tell.
    """
    supported = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", None)
    return device.type == "cpu" and supported is not None and not supported()
