"""RegNetY-400MF for images of about 32 x 32: grouped bottlenecks of regular widths that weigh their channels."""

import torch.nn.functional as F
from torch import Tensor, nn

from holdfast.backbones.initialise import check_positive, kaiming_convolutions
from holdfast.backbones.squeeze import SqueezeExcitation, start_weighing

WIDTHS = (32, 64, 160, 384)
DEPTHS = (1, 2, 7, 12)
STRIDES = (1, 1, 2, 2)
GROUP_WIDTH = 16
SQUEEZE = 4


class YBlock(nn.Module):
    """1 x 1, grouped 3 x 3, squeeze and excitation, 1 x 1, each with batch norm; ReLU after the sum."""

    def __init__(self, inputs: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, channels, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        groups = channels // GROUP_WIDTH
        self.conv2 = nn.Conv2d(channels, channels, 3, stride, padding=1, groups=groups, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        # As many hidden units as a quarter of what came into the block, not of what it works with.
        self.weigh = SqueezeExcitation(channels, inputs // SQUEEZE)
        self.conv3 = nn.Conv2d(channels, channels, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(channels)
        self.shortcut = None
        if stride != 1 or inputs != channels:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, channels, 1, stride, bias=False), nn.BatchNorm2d(channels))

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.bn1(self.conv1(x)))
        h = self.weigh(F.relu(self.bn2(self.conv2(h))))
        h = self.bn3(self.conv3(h))
        return F.relu(h + (x if self.shortcut is None else self.shortcut(x)))


class RegNetY(nn.Module):
    """N x C x H x W -> N x 384: a 3 x 3 stem of 64 channels, four stages, the mean over positions."""

    def __init__(self, in_channels: int) -> None:
        super().__init__()
        self.feature_dim = WIDTHS[-1]
        self.stem = nn.Sequential(nn.Conv2d(in_channels, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU())
        inputs = 64
        blocks: list[nn.Module] = []
        for width, depth, stride in zip(WIDTHS, DEPTHS, STRIDES, strict=True):
            for i in range(depth):
                blocks.append(YBlock(inputs, width, stride if i == 0 else 1))
                inputs = width
        self.blocks = nn.Sequential(*blocks)
        kaiming_convolutions(self)
        start_weighing(self)

    def forward(self, x: Tensor) -> Tensor:
        return self.blocks(self.stem(x)).mean(dim=(2, 3))


def regnety_400mf(*, in_channels: int = 3) -> RegNetY:
    """RegNetY-400MF with a stem for small images: 5,710,512 parameters on RGB, features of size 384.

    Differs from the original: widths and depths of the variant for 32 x 32 images that the paper's 384 features come
    from; the ImageNet network ends in 440.
    """
    check_positive("regnety_400mf", in_channels=in_channels)
    return RegNetY(in_channels)
