"""ResNet-18 and ResNet-50 with torchvision's parameter names and no classifier, and ResNet-32 for CIFAR.

torchvision's published weights fit except for ``fc.*``. ResNet-32 is the network of He et al. 2016, section 4.2:
6n + 2 layers with n = 5.
"""

from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from holdfast.core.errors import unknown_name
from holdfast.train.encoders.initialise import check_positive, kaiming_convolutions

Stem = Literal["imagenet", "small"]


class BasicBlock(nn.Module):
    expansion = 1

    def __init__(self, inputs: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, channels, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.downsample = _projected_shortcut(inputs, channels * self.expansion, stride)

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.bn1(self.conv1(x)))
        h = self.bn2(self.conv2(h))
        return F.relu(h + (x if self.downsample is None else self.downsample(x)))


class Bottleneck(nn.Module):
    """1 x 1, 3 x 3, 1 x 1. Differs from He et al.: the stride is on the 3 x 3, as in torchvision."""

    expansion = 4

    def __init__(self, inputs: int, channels: int, stride: int) -> None:
        super().__init__()
        outputs = channels * self.expansion
        self.conv1 = nn.Conv2d(inputs, channels, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.conv3 = nn.Conv2d(channels, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.downsample = _projected_shortcut(inputs, outputs, stride)

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.bn1(self.conv1(x)))
        h = F.relu(self.bn2(self.conv2(h)))
        h = self.bn3(self.conv3(h))
        return F.relu(h + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    """N x C x H x W -> N x (512 * expansion): four stages of 64, 128, 256 and 512 channels, average pooling.

    Stem ``imagenet``: 7 x 7 with stride 2 and a max-pool, for images of about 224; ``small``: 3 x 3 with stride 1 and
    no pool, for images of about 32.
    """

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        blocks: tuple[int, int, int, int],
        stem: Stem,
        in_channels: int,
    ) -> None:
        super().__init__()
        self.feature_dim = 512 * block.expansion
        if stem == "imagenet":
            self.conv1 = nn.Conv2d(in_channels, 64, 7, stride=2, padding=3, bias=False)
            self.maxpool: nn.Module = nn.MaxPool2d(3, stride=2, padding=1)
        elif stem == "small":
            self.conv1 = nn.Conv2d(in_channels, 64, 3, padding=1, bias=False)
            self.maxpool = nn.Identity()
        else:
            raise unknown_name("stem", stem, ("imagenet", "small"))
        self.bn1 = nn.BatchNorm2d(64)
        wide = block.expansion
        self.layer1 = _imagenet_stage(block, 64, 64, blocks[0], stride=1)
        self.layer2 = _imagenet_stage(block, 64 * wide, 128, blocks[1], stride=2)
        self.layer3 = _imagenet_stage(block, 128 * wide, 256, blocks[2], stride=2)
        self.layer4 = _imagenet_stage(block, 256 * wide, 512, blocks[3], stride=2)
        kaiming_convolutions(self)

    def forward(self, x: Tensor) -> Tensor:
        h = self.maxpool(F.relu(self.bn1(self.conv1(x))))
        h = self.layer4(self.layer3(self.layer2(self.layer1(h))))
        return h.mean(dim=(2, 3))


def _projected_shortcut(inputs: int, outputs: int, stride: int) -> nn.Sequential | None:
    if stride == 1 and inputs == outputs:
        return None
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))


def _imagenet_stage(
    block: type[BasicBlock] | type[Bottleneck], inputs: int, channels: int, count: int, stride: int
) -> nn.Sequential:
    rest = (block(channels * block.expansion, channels, 1) for _ in range(count - 1))
    return nn.Sequential(block(inputs, channels, stride), *rest)


def resnet18(*, stem: Stem = "imagenet", in_channels: int = 3) -> ResNet:
    """ResNet-18: 11,176,512 parameters with the ImageNet stem on RGB, features of size 512."""
    check_positive("resnet18", in_channels=in_channels)
    return ResNet(BasicBlock, (2, 2, 2, 2), stem, in_channels)


def resnet50(*, stem: Stem = "imagenet", in_channels: int = 3) -> ResNet:
    """ResNet-50: 23,508,032 parameters with the ImageNet stem on RGB, features of size 2048."""
    check_positive("resnet50", in_channels=in_channels)
    return ResNet(Bottleneck, (3, 4, 6, 3), stem, in_channels)


class PlainShortcutBlock(nn.Module):
    """Two 3 x 3 convolutions and a shortcut without parameters (option A of the paper)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.stride = stride
        self.new_channels = outputs - inputs

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.bn1(self.conv1(x)))
        h = self.bn2(self.conv2(h))
        if self.new_channels:
            before = self.new_channels // 2
            x = F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, before, self.new_channels - before))
        return F.relu(h + x)


class CifarResNet(nn.Module):
    """N x C x H x W -> N x 64: three stages of 16, 32 and 64 channels, a last ReLU, the mean over positions."""

    def __init__(self, blocks: int, in_channels: int) -> None:
        super().__init__()
        self.feature_dim = 64
        self.conv1 = nn.Conv2d(in_channels, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = _cifar_stage(16, 16, blocks, stride=1)
        self.layer2 = _cifar_stage(16, 32, blocks, stride=2)
        self.layer3 = _cifar_stage(32, 64, blocks, stride=2)
        kaiming_convolutions(self)

    def blocks(self) -> list[PlainShortcutBlock]:
        """All blocks in order."""
        stages = (self.layer1, self.layer2, self.layer3)
        return [block for stage in stages for block in stage if isinstance(block, PlainShortcutBlock)]

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.bn1(self.conv1(x)))
        h = self.layer3(self.layer2(self.layer1(h)))
        return h.mean(dim=(2, 3))


def _cifar_stage(inputs: int, outputs: int, blocks: int, stride: int) -> nn.Sequential:
    first = PlainShortcutBlock(inputs, outputs, stride)
    return nn.Sequential(first, *(PlainShortcutBlock(outputs, outputs, 1) for _ in range(blocks - 1)))


def resnet32(*, in_channels: int = 3) -> CifarResNet:
    """ResNet-32 for CIFAR: 463,504 parameters, features of size 64."""
    check_positive("resnet32", in_channels=in_channels)
    return CifarResNet(blocks=5, in_channels=in_channels)
