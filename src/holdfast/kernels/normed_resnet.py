"""A ResNet whose norms, sums and ReLUs are carried out by the kernels."""

from torch import Tensor, nn

from holdfast.backbones.resnet import BasicBlock, Bottleneck, ResNet
from holdfast.kernels.norm_operation import convolved_and_normed, normed


class NormedBasicBlock(BasicBlock):
    """What ``BasicBlock`` gives, from its input and to its output twice: for the convolution and the shortcut."""

    def forward(self, x: tuple[Tensor, ...]) -> tuple[Tensor, ...]:  # type: ignore[override]
        h, _ = normed(self.bn1, self.conv1(x[0]))
        return normed(self.bn2, self.conv2(h), _shortcut(self.downsample, x[1]))


class NormedBottleneck(Bottleneck):
    """What ``Bottleneck`` gives, as above."""

    def forward(self, x: tuple[Tensor, ...]) -> tuple[Tensor, ...]:  # type: ignore[override]
        h, _ = normed(self.bn1, self.conv1(x[0]))
        h, _ = normed(self.bn2, self.conv2(h))
        return normed(self.bn3, self.conv3(h), _shortcut(self.downsample, x[1]))


class NormedResNet(ResNet):
    """What ``ResNet`` gives, with blocks that stand in for its own."""

    def forward(self, x: Tensor) -> Tensor:
        out = normed(self.bn1, self.conv1(x))
        if not isinstance(self.maxpool, nn.Identity):
            out = (self.maxpool(out[0]),) * 2
        for stage in (self.layer1, self.layer2, self.layer3, self.layer4):
            out = stage(out)
        return out[0].mean(dim=(2, 3))


def _shortcut(downsample: nn.Sequential | None, x: Tensor) -> Tensor:
    return x if downsample is None else convolved_and_normed(downsample, x)[0]


STANDS_IN: dict[type[nn.Module], type[nn.Module]] = {
    BasicBlock: NormedBasicBlock,
    Bottleneck: NormedBottleneck,
    ResNet: NormedResNet,
}
