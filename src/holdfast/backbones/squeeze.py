"""Squeeze and excitation: a network's channels weighed by what the whole image shows."""

import torch
from torch import Tensor, nn


class SqueezeExcitation(nn.Module):
    """x times a number in (0, 1) for each channel, found from the mean of all channels through ``hidden`` units."""

    def __init__(self, channels: int, hidden: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(channels, hidden, 1)
        self.excite = nn.Conv2d(hidden, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(dim=(2, 3), keepdim=True)
        return x * torch.sigmoid(self.excite(torch.relu(self.squeeze(mean))))


def start_weighing(network: nn.Module) -> None:
    """Small weights where channels are weighed: with so few hidden units He's fan-out scale leaves most dead."""
    for module in network.modules():
        if isinstance(module, SqueezeExcitation):
            module.squeeze.reset_parameters()
            module.excite.reset_parameters()
