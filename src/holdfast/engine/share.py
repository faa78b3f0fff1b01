"""One rank's part of every batch, and what the ranks make of their parts together."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from holdfast.data.augment import Part
from holdfast.data.sampler import halves
from holdfast.engine.options import FitOptions
from holdfast.engine.ranks import Ranks
from holdfast.errors import HoldfastError
from holdfast.scenarios import Task


def share_of(task: Task, options: FitOptions, ranks: Ranks, device: torch.device) -> "Share":
    """This rank's part of the batches of a task; refused where the ranks' parts would not be equal."""
    both = halves(len(task.new_indices), len(task.buffer_indices), options.batch_size)
    for kind, count in zip(("replayed", "new"), both):
        if count % ranks.world:
            raise HoldfastError(
                f"a batch of task {task.number} has {count} {kind} images, which {ranks.world} ranks cannot share "
                "equally; change train.batch_size, scenario.buffer_per_class or the number of ranks"
            )
    return Share(ranks, *both, gather=options.gather, device=device)


class Share:
    """Equal parts of the replayed and of the new images of a batch, for each rank.

    What is minimised is the mean over the ranks of each one's loss. With ``gather`` every rank's loss is that of the
    whole batch, so all of them together do what one process would; without, each sees its own images alone, as
    negatives of a contrastive loss or in a mean over the images that count.
    """

    def __init__(self, ranks: Ranks, replayed: int, fresh: int, *, gather: bool, device: torch.device) -> None:
        self._world = ranks.world
        self._gathers = gather and ranks.world > 1
        parts = torch.arange(replayed).chunk(ranks.world), torch.arange(replayed, replayed + fresh).chunk(ranks.world)
        of_each = [torch.cat(rows) for rows in zip(*parts)] if replayed else list(parts[1])
        self._rows = of_each[ranks.rank].to(device)
        self._order = torch.cat(of_each).argsort().to(device)
        self.size = len(self._rows)
        self.replayed = replayed // ranks.world
        self.replayed_seen = replayed if self._gathers else self.replayed
        self.part = Part(self._rows, replayed + fresh) if ranks.world > 1 else None

    @property
    def alone(self) -> bool:
        """Whether there is no other process to exchange anything with."""
        return self._world == 1

    def own(self, batch: Tensor) -> Tensor:
        """This rank's rows of something that has one for each image of the batch."""
        return batch if self.alone else batch[..., self._rows.to(batch.device)]

    def seen(self, batch: Tensor) -> Tensor:
        """The rows whose features the method sees here: all of them where they are gathered."""
        return batch if self._gathers else self.own(batch)

    def whole(self, z: Tensor) -> Tensor:
        """The features of the batch from those of the parts, in the batch's order; of all images or the replayed."""
        if not self._gathers or len(z) == 0:
            return z
        gathered = gather(z)
        return gathered if len(z) < self.size else gathered[self._order]

    def mean(self, optimizer: torch.optim.Optimizer, terms: Tensor) -> Tensor:
        """Replace the gradients by their mean over the ranks; the same mean of the terms. One exchange for all."""
        if self.alone:
            return terms
        trained = (parameter for group in optimizer.param_groups for parameter in group["params"])
        gradients = [parameter.grad for parameter in trained if parameter.grad is not None]
        flat = torch.cat([*(gradient.reshape(-1) for gradient in gradients), terms.reshape(-1)])
        dist.all_reduce(flat)
        *means, terms_mean = (flat / self._world).split([*(gradient.numel() for gradient in gradients), len(terms)])
        for gradient, mean in zip(gradients, means):
            gradient.copy_(mean.view_as(gradient))
        return terms_mean


def gather(x: Tensor) -> Tensor:
    """The x of all ranks one below the other; the gradient is the sum of what every rank has for this one's rows."""
    return _Gather.apply(x)


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.rows = len(x)
        everyone = x.new_empty(dist.get_world_size() * len(x), *x.shape[1:])
        dist.all_gather(list(everyone.chunk(dist.get_world_size())), x.contiguous())
        return everyone

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        total = grad.float().contiguous()  # in float32: a sum over many ranks would lose bits in bf16
        total = total.clone() if total is grad else total
        dist.all_reduce(total)
        start = dist.get_rank() * ctx.rows
        return total[start : start + ctx.rows].to(grad.dtype)
