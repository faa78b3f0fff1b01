"""The layer between backbone and features that begins as the centred features of a network with trained weights."""

from typing import Any, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from holdfast.core.errors import HoldfastError
from holdfast.train.geometry.simplex import Layer


class IdentityLayer(nn.Linear):
    """h -> W (h - c), with W that begins as the identity and a constant c that begins as 0.

    inputs: size of h.
    outputs: size of the result, at least ``inputs``; the numbers after the first ``inputs`` begin as 0.

    ``begun`` is whether training has set W and c once (``begin``): a saved layer stays as it is.
    """

    centre: Tensor
    begun: Tensor

    def __init__(self, inputs: int, outputs: int) -> None:
        if outputs < inputs:
            raise HoldfastError(
                f"a layer that begins as the identity cannot make {outputs} numbers of {inputs}; set slots to "
                f"{inputs + 1} or more, or layer to projection"
            )
        super().__init__(inputs, outputs, bias=False)
        nn.init.eye_(self.weight)
        self.register_buffer("centre", torch.zeros(inputs))
        self.register_buffer("begun", torch.tensor(False))

    def forward(self, h: Tensor) -> Tensor:
        return F.linear(h - self.centre, self.weight)

    def begin(self, centre: Tensor, weight: Tensor | None = None) -> None:
        """Set c, and W unless it stays the identity."""
        with torch.no_grad():
            self.centre.copy_(centre)
            if weight is not None:
                self.weight.copy_(weight)
            self.begun.fill_(True)


def known_layer(layer: Any) -> Layer:
    """``layer``, if it is one of ``Layer``."""
    if layer not in get_args(Layer):
        raise HoldfastError(f"layer must be one of {', '.join(get_args(Layer))}, got {layer!r}")
    return layer


def make_layer(layer: Layer, inputs: int, outputs: int) -> nn.Linear | None:
    """The layer of an encoder; None for a projection to the same size, which is left out."""
    if layer == "identity":
        return IdentityLayer(inputs, outputs)
    return None if inputs == outputs else nn.Linear(inputs, outputs, bias=False)
