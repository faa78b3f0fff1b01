"""How one task is trained: numbers that no method owns.

Whether a device computes in bf16 itself, or imitates it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch

from holdfast.data.device_images import Placement
from holdfast.data.sampler import Draw
from holdfast.errors import HoldfastError

Optimizer = Literal["sgd", "adamw"]
Schedule = Literal["step", "cosine", "constant"]
Precision = Literal["fp32", "bf16"]
Executor = Literal["auto", "eager", "compiled", "graph", "fused"]


@dataclass(frozen=True)
class FitOptions:
    """Optimisation, batches, augmentation and checkpoints of one task.

    milestones: where the "step" schedule multiplies the rate by ``decay``, as fractions of the epochs (the paper's 50
    and 64 of 70), so that they move along when ``epochs`` changes. final_lr: where "cosine" ends.
    weight_decay applies to every parameter, biases and normalisation included, as in the authors' code for CL2R;
    without decay_norms it leaves out what has fewer than two dimensions, as in their later code for IAM-CL2R.
    lr_groups: factors of the rate by prefix of the encoder's parameters, such as {"backbone.layer1": 0.1}; the longest
    prefix counts, and what has none keeps the rate.
    crop_padding: crops of the images' own size, after so many black pixels were put around them. resized_crop: instead,
    boxes of ``crop_scale`` of the area and a width to height of ``crop_ratio``, scaled to so many pixels a side.
    draw: how the halves of a batch are drawn (data/sampler.py).
    executor: how a step is carried out (training/executors.py). "auto" is "graph" (a CUDA graph) on a GPU and
    "eager" elsewhere; both give the same bits. "fused" is a CUDA graph of kernels made for the network: faster, in bf16
    only, and rounded in other places than torch does, so a run must ask for it by name.
    images: where the training images are: on the device, streamed to it, or ("auto") streamed if they do not fit.
    gather: under several ranks, whether each one's loss is that of the whole batch or of its part (training/ranks.py).
    sync_bn: under several ranks, whether batch norm counts the whole batch. With both on, as they are, a recipe means
    the same on any number of ranks; ``batch_size`` always is that of all ranks together.
    checkpoint_minutes: how often the middle of a task is saved.
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
    precision: Precision = "fp32"
    draw: Draw = "walk"
    crop_padding: int = 4
    resized_crop: int = 0
    crop_scale: tuple[float, float] = (0.08, 1.0)
    crop_ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: bool = True
    executor: Executor = "auto"
    images: Placement = "auto"
    gather: bool = True
    sync_bn: bool = True
    checkpoint_minutes: float = 5.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name, kinds in (
            ("optimizer", Optimizer),
            ("schedule", Schedule),
            ("precision", Precision),
            ("draw", Draw),
            ("executor", Executor),
            ("images", Placement),
        ):
            if getattr(self, name) not in get_args(kinds):
                raise HoldfastError(
                    f"train.{name} must be one of {', '.join(get_args(kinds))}, got {getattr(self, name)!r}"
                )
        least_values = {
            "epochs": 1,
            "batch_size": 2,
            "crop_padding": 0,
            "resized_crop": 0,
            "momentum": 0,
            "weight_decay": 0,
            "final_lr": 0,
            "checkpoint_minutes": 0,
        }
        for name, least in least_values.items():
            if not getattr(self, name) >= least:
                raise HoldfastError(f"train.{name} must be at least {least}, got {getattr(self, name)}")
        if not all(0 < fraction < 1 for fraction in self.milestones):
            raise HoldfastError(
                "train.milestones must be fractions of the epochs, between 0 and 1 (50 of 70 is 0.7143), "
                f"got {list(self.milestones)}"
            )
        for name in ("lr", "decay"):
            if not getattr(self, name) > 0:
                raise HoldfastError(f"train.{name} must be above 0, got {getattr(self, name)}")
        for prefix, factor in (self.lr_groups or {}).items():
            if not 0 < factor < float("inf"):
                raise HoldfastError(f"train.lr_groups: {prefix!r} must be a factor above 0, got {factor}; or freeze it")
        if self.resized_crop and self.crop_padding:
            raise HoldfastError("train.crop_padding and train.resized_crop are two ways to crop; set one of them to 0")
        for name, most in (("crop_scale", 1.0), ("crop_ratio", float("inf"))):
            low, high = getattr(self, name)
            if not 0 < low <= high <= most:
                raise HoldfastError(f"train.{name} must be two numbers above 0, the smaller first, got [{low}, {high}]")


OFF_FOR_VECTORS: dict[str, int | bool] = {"crop_padding": 0, "resized_crop": 0, "flip": False}
"""What changes pictures has no meaning for vectors."""


def refuse_augmentation(options: Mapping[str, Any]) -> None:
    """For vectors: an option that would change pictures is refused by its name."""
    for name, off in OFF_FOR_VECTORS.items():
        if options[name] != off:
            raise HoldfastError(f"train.{name} is for images, and these are vectors; set it to {str(off).lower()}")


def imitates_bf16(device: torch.device) -> bool:
    """A CPU without bf16 instructions, on which torch computes bf16 with loops of its own, slower by orders.

    One without oneDNN, or with another torch, is not judged.
    """
    supported = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", None)
    return device.type == "cpu" and supported is not None and not supported()
