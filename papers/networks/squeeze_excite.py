"""Networks with squeeze-and-excitation blocks for images of about 32 x 32: SENet-18 and RegNetY-400MF."""

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from holdfast.train.encoders.initialise import check_positive, kaiming_convolutions


class SqueezeExcitation(nn.Module):
    """Scale each channel of x by a number in (0, 1), from the channel means by an MLP with ``hidden`` units."""

    def __init__(self, channels: int, hidden: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(channels, hidden, 1)
        self.excite = nn.Conv2d(hidden, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(dim=(2, 3), keepdim=True)
        return x * torch.sigmoid(self.excite(torch.relu(self.squeeze(mean))))


def init_squeeze_excitations(network: nn.Module) -> None:
    """Reset squeeze-and-excitation layers to PyTorch's default: He's fan-out scale leaves most hidden units dead."""
    for module in network.modules():
        if isinstance(module, SqueezeExcitation):
            module.squeeze.reset_parameters()
            module.excite.reset_parameters()


REDUCTION = 16


class PreActivationBlock(nn.Module):
    """Norm, ReLU, 3 x 3, twice, then squeeze and excitation; the result is added to the shortcut."""

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
    and ReLU, then global average pooling."""

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
        init_squeeze_excitations(self)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.bn(self.blocks(self.stem(x)))).mean(dim=(2, 3))


def senet18(*, in_channels: int = 3) -> SENet:
    """SENet-18 with a stem for small images: 11,256,120 parameters on RGB, features of size 512."""
    check_positive("senet18", in_channels=in_channels)
    return SENet(in_channels)


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
        # A quarter of the block's input channels, not of its inner ones.
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
    """N x C x H x W -> N x 384: a 3 x 3 stem of 64 channels, four stages, global average pooling."""

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
        init_squeeze_excitations(self)

    def forward(self, x: Tensor) -> Tensor:
        return self.blocks(self.stem(x)).mean(dim=(2, 3))


def regnety_400mf(*, in_channels: int = 3) -> RegNetY:
    """RegNetY-400MF with a stem for small images: 5,710,512 parameters on RGB, features of size 384.

    Differs from the original: widths and depths are those of the variant for 32 x 32 images, which gives the paper's
    384 features; the ImageNet network gives 440.
    """
    check_positive("regnety_400mf", in_channels=in_channels)
    return RegNetY(in_channels)
