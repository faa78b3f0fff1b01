"""A small network for grey images of about 28 x 28 that trains on two CPU cores while one watches."""

import torch
from torch import Tensor, nn

from holdfast.backbones.initialise import check_positive, kaiming_convolutions


class SmallNet(nn.Module):
    """N x C x H x W -> N x (4 * width): four convolutions, each with batch norm and ReLU, then the mean over positions.

    The first takes a third of each side and the others half of it, so that few positions are left when the channels
    are many: 0.6 million multiply-adds an image at 28 x 28 and width 32.
    """

    def __init__(self, in_channels: int, width: int) -> None:
        super().__init__()
        self.feature_dim = 4 * width
        narrow = max(width // 2, 1)
        self.stages = nn.Sequential(
            _stage(in_channels, narrow, kernel=5, stride=3),
            _stage(narrow, width, kernel=3, stride=2),
            _stage(width, 2 * width, kernel=3, stride=2),
            _stage(2 * width, 4 * width, kernel=3, stride=2),
        )
        kaiming_convolutions(self)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # faster on CPUs at these sizes

    def forward(self, x: Tensor) -> Tensor:
        return self.stages(x).mean(dim=(2, 3))


def _stage(inputs: int, outputs: int, *, kernel: int, stride: int) -> nn.Sequential:
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))


def small(*, in_channels: int = 1, width: int = 32) -> SmallNet:
    """The demo network: features of size ``4 * width``; 97,648 parameters as it stands."""
    check_positive("small", in_channels=in_channels, width=width)
    return SmallNet(in_channels, width)
