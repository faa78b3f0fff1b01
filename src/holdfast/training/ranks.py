"""Several processes that train one model: who is who, and when they wait for each other.

One rank's part of every batch, and what the ranks make of their parts together.

Batch norm whose statistics are those of the whole batch, when the batch is shared out over ranks.
"""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from holdfast.data.augment import Part
from holdfast.data.sampler import halves
from holdfast.devices import resolve_device
from holdfast.errors import HoldfastError
from holdfast.scenarios import Task
from holdfast.training.options import Executor, FitOptions

PATIENCE = timedelta(days=30)
"""How long ranks wait while the first one evaluates. A rank that ends, ends the wait at once; only a lost one costs."""


@dataclass(frozen=True)
class Ranks:
    """Which of ``world`` processes this is; 0 of 1 where there is only one.

    Rank 0 is the first: it alone writes, logs and evaluates. What the others need of it they read from the run folder,
    which all of them must see.
    device: where this rank computes; None leaves the choice to the caller.
    waiting: the group of processes that waits with patience, apart from the one that trains.
    """

    rank: int = 0
    world: int = 1
    device: torch.device | None = None
    waiting: dist.ProcessGroup | None = None

    @property
    def first(self) -> bool:
        return self.rank == 0

    def wait(self) -> None:
        """Until every rank is here."""
        if self.world > 1:
            dist.barrier(self.waiting)

    def align(self, *modules: nn.Module) -> None:
        """Give every rank the first one's weights and buffers."""
        if self.world > 1:
            for module in modules:
                for tensor in module.state_dict().values():
                    whole = tensor.contiguous()
                    dist.broadcast(whole, 0)
                    tensor.copy_(whole)

    def executor(self, wanted: Executor) -> Executor:
        """ "auto" is eager under several ranks: a graph with collectives inside is for those who ask for it."""
        return "eager" if self.world > 1 and wanted == "auto" else wanted


ALONE = Ranks()


@contextlib.contextmanager
def joined(device: str = "auto") -> Iterator[Ranks]:
    """Join the processes that ``torchrun`` started with this one; alone where it did not.

    When one rank fails the others end too: their next exchange with it breaks, and torchrun stops the rest.
    """
    rank, world, local = (int(os.environ.get(name, 0)) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    if world <= 1 or "MASTER_ADDR" not in os.environ:  # some queues set WORLD_SIZE for reasons of their own
        yield ALONE
        return
    try:
        where = _device_of(device, local)
        on_gpu = where.type == "cuda"
        if on_gpu:
            torch.cuda.set_device(where)
        dist.init_process_group("nccl" if on_gpu else "gloo", device_id=where if on_gpu else None)
        yield Ranks(rank, world, where, dist.new_group(backend="gloo", timeout=PATIENCE))
    except HoldfastError as error:
        raise HoldfastError(f"rank {rank} of {world}: {error}") from error
    except RuntimeError as error:
        if _lost_a_rank(error):
            raise HoldfastError(
                f"rank {rank} of {world}: stopped, because another rank did; its message says why"
            ) from error
        raise
    # Only after success: after a failure it could wait for ranks that are gone.
    dist.destroy_process_group()


def _device_of(name: str, local: int) -> torch.device:
    where = resolve_device(name)
    if where.type != "cuda":
        return where
    if where.index is not None:
        raise HoldfastError(f"--device {name}: every process takes a GPU of its own; use --device cuda")
    if local >= torch.cuda.device_count():
        raise HoldfastError(
            f"process {local + 1} on this machine has no GPU left, there are {torch.cuda.device_count()}; "
            "start torchrun with fewer --nproc_per_node"
        )
    return torch.device("cuda", local)


def _lost_a_rank(error: RuntimeError) -> bool:
    """Gloo has no exception of its own; it names its source files or the connection."""
    text = str(error).lower()
    return isinstance(error, dist.DistError) or "gloo" in text or "connection" in text


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
