"""A SENet whose norms, ReLUs, channel weights and sums are carried out by the kernels."""

from torch import Tensor, nn

from holdfast.backbones.senet import PreActivationBlock, SENet
from holdfast.kernels.norm_operation import normed
from holdfast.kernels.weighed_sum_operation import weighed_sum


class NormedPreActivationBlock(PreActivationBlock):
    """What ``PreActivationBlock`` gives, from its input and to its output twice: for the norm and the shortcut."""

    def forward(self, x: tuple[Tensor, ...]) -> tuple[Tensor, ...]:  # type: ignore[override]
        h, same = normed(self.bn1, x[0])
        shortcut = x[1] if self.shortcut is None else self.shortcut(same)
        h, _ = normed(self.bn2, self.conv1(h))
        return weighed_sum(self.weigh, self.conv2(h), shortcut)


class NormedSENet(SENet):
    """What ``SENet`` gives, with blocks that stand in for its own."""

    def forward(self, x: Tensor) -> Tensor:
        out = self.blocks((self.stem(x),) * 2)
        return normed(self.bn, out[0])[0].mean(dim=(2, 3))


STANDS_IN: dict[type[nn.Module], type[nn.Module]] = {PreActivationBlock: NormedPreActivationBlock, SENet: NormedSENet}
