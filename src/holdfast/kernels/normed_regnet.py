"""A RegNetY whose norms, sums, ReLUs and channel weights are carried out by the kernels."""

from torch import Tensor, nn

from holdfast.backbones.regnet import RegNetY, YBlock
from holdfast.kernels.norm_operation import convolved_and_normed, normed
from holdfast.kernels.weigh_operation import normed_and_weighed


class NormedYBlock(YBlock):
    """What ``YBlock`` gives, from its input and to its output twice: for the block's convolution and the shortcut."""

    def forward(self, x: tuple[Tensor, ...]) -> tuple[Tensor, ...]:  # type: ignore[override]
        h, _ = normed(self.bn1, self.conv1(x[0]))
        h = normed_and_weighed(self.bn2, self.weigh, self.conv2(h))
        residual = x[1] if self.shortcut is None else convolved_and_normed(self.shortcut, x[1])[0]
        return normed(self.bn3, self.conv3(h), residual)


class NormedRegNet(RegNetY):
    """What ``RegNetY`` gives, with blocks that stand in for its own."""

    def forward(self, x: Tensor) -> Tensor:
        out = convolved_and_normed(self.stem, x)
        for block in self.blocks:
            out = block(out)
        return out[0].mean(dim=(2, 3))


STANDS_IN: dict[type[nn.Module], type[nn.Module]] = {YBlock: NormedYBlock, RegNetY: NormedRegNet}
