"""SENet-18 for images of about 32 x 32: a pre-activation ResNet-18 whose blocks weigh their channels."""

from itertools import pairwise

import torch.nn.functional as F
from torch import Tensor, nn

from holdfast.backbones.initialise import check_positive, kaiming_convolutions
from holdfast.backbones.squeeze import SqueezeExcitation, start_weighing

REDUCTION = 16


class PreActivationBlock(nn.Module):
    """Norm, ReLU, 3 x 3, twice; the result is weighed channel by channel and added to the shortcut."""

    def __init__(self, inputs: int, channels: int, stride: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, channels, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.weigh = SqueezeExcitation(channels, channels // REDUCTION)
        same = stride == 1 and inputs == channels
        self.shortcut = None if same else nn.Conv2d(inputs, channels, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.bn1(x))
        shortcut = x if self.shortcut is None else self.shortcut(h)
        h = self.conv2(F.relu(self.bn2(self.conv1(h))))
        return self.weigh(h) + shortcut


class SENet(nn.Module):
    """N x C x H x W -> N x 512: a 3 x 3 stem, four stages of two blocks with 64, 128, 256 and 512 channels, a last norm
    and ReLU (without which a pre-activation network would end in a bare sum), the mean over positions."""

    def __init__(self, in_channels: int) -> None:
        super().__init__()
        self.feature_dim = 512
        self.stem = nn.Conv2d(in_channels, 64, 3, padding=1, bias=False)
        widths = [64, 64, 128, 256, 512]
        blocks: list[nn.Module] = []
        for inputs, channels in pairwise(widths):
            blocks.append(PreActivationBlock(inputs, channels, 1 if channels == 64 else 2))
            blocks.append(PreActivationBlock(channels, channels, 1))
        self.blocks = nn.Sequential(*blocks)
        self.bn = nn.BatchNorm2d(512)
        kaiming_convolutions(self)
        start_weighing(self)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.bn(self.blocks(self.stem(x)))).mean(dim=(2, 3))


def senet18(*, in_channels: int = 3) -> SENet:
    """SENet-18 with a stem for small images: 11,256,120 parameters on RGB, features of size 512."""
    check_positive("senet18", in_channels=in_channels)
    return SENet(in_channels)
