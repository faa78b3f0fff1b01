"""The ResNet for 32 x 32 images of He et al. 2016, section 4.2: 6n + 2 layers, here n = 5."""

import torch.nn.functional as F
from torch import Tensor, nn

from holdfast.backbones.initialise import check_positive, kaiming_convolutions


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
        self.layer1 = _stage(16, 16, blocks, stride=1)
        self.layer2 = _stage(16, 32, blocks, stride=2)
        self.layer3 = _stage(32, 64, blocks, stride=2)
        kaiming_convolutions(self)

    def blocks(self) -> list[PlainShortcutBlock]:
        """All blocks in order."""
        stages = (self.layer1, self.layer2, self.layer3)
        return [block for stage in stages for block in stage if isinstance(block, PlainShortcutBlock)]

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.bn1(self.conv1(x)))
        h = self.layer3(self.layer2(self.layer1(h)))
        return h.mean(dim=(2, 3))


def _stage(inputs: int, outputs: int, blocks: int, stride: int) -> nn.Sequential:
    first = PlainShortcutBlock(inputs, outputs, stride)
    return nn.Sequential(first, *(PlainShortcutBlock(outputs, outputs, 1) for _ in range(blocks - 1)))


def resnet32(*, in_channels: int = 3) -> CifarResNet:
    """ResNet-32 for CIFAR: 463,504 parameters, features of size 64."""
    check_positive("resnet32", in_channels=in_channels)
    return CifarResNet(blocks=5, in_channels=in_channels)
