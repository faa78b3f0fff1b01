"""Batch norm whose statistics are those of the whole batch, when the batch is shared out over ranks."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from holdfast.engine.share import gather


def synchronise_batch_norm(network: nn.Module, device: torch.device) -> None:
    """Replace every batch norm below ``network`` by one that counts all ranks; weights and names stay.

    On a GPU that is torch's own, which is fused; torch has none for a CPU.
    """
    if device.type == "cuda":
        nn.SyncBatchNorm.convert_sync_batchnorm(network)
        return
    for parent in list(network.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, _BatchNorm):
                setattr(parent, name, SynchronisedBatchNorm(child))


class SynchronisedBatchNorm(_BatchNorm):
    """Takes over the parameters and buffers of a batch norm. In training all ranks must call it, with equal batches."""

    def __init__(self, plain: _BatchNorm) -> None:
        nn.Module.__init__(self)
        self.num_features, self.eps, self.momentum = plain.num_features, plain.eps, plain.momentum
        self.affine, self.track_running_stats = plain.affine, plain.track_running_stats
        self.training = plain.training
        self.weight, self.bias = plain.weight, plain.bias
        for name, buffer in plain.named_buffers(recurse=False):
            self.register_buffer(name, buffer)

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            mean, var = self.running_mean, self.running_var
            return F.batch_norm(x, mean, var, self.weight, self.bias, mean is None, 0.0, self.eps)
        dims = [0, *range(2, x.ndim)]
        with torch.autocast(x.device.type, enabled=False):
            wide = x.float()
            local_var, local_mean = torch.var_mean(wide, dims, correction=0)
            # Means and variances, not sums of squares: those cancel. Parts are equal, so plain means will do.
            means, variances = gather(torch.stack([local_mean, local_var])[None]).unbind(1)
            mean = means.mean(0)
            var = (variances + (means - mean).square()).mean(0)
            self._remember(mean.detach(), var.detach(), len(means) * x.numel() // x.shape[1])
            shape = [1, -1, *(1 for _ in dims[1:])]
            scale = (var + self.eps).rsqrt() if self.weight is None else (var + self.eps).rsqrt() * self.weight
            y = (wide - mean.view(shape)) * scale.view(shape)
            return (y if self.bias is None else y + self.bias.view(shape)).to(x.dtype)

    def _remember(self, mean: Tensor, var: Tensor, count: int) -> None:
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        self.num_batches_tracked += 1
        share = 1 / self.num_batches_tracked if self.momentum is None else torch.tensor(self.momentum)
        self.running_mean.lerp_(mean, share.to(mean))
        self.running_var.lerp_(var * count / max(count - 1, 1), share.to(var))
