"""Several processes that train one model together, started by torchrun.

Each rank computes its part of every batch. Gradients are averaged; features and batch-norm statistics are gathered.
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

from holdfast.core.errors import HoldfastError
from holdfast.train.data.augment import BatchPart
from holdfast.train.data.sampler import batch_shares
from holdfast.train.devices import resolve_device
from holdfast.train.engine.fit_options import Executor, FitOptions
from holdfast.train.scenarios import Task

PATIENCE = timedelta(days=30)
"""How long ranks wait while the first one evaluates. If a rank ends, the wait ends at once."""


@dataclass(frozen=True)
class Ranks:
    """Which of ``world`` processes this is; 0 of 1 if there is only one.

    Only rank 0, the first, writes, logs and evaluates. The others read its results from the run folder, which must be
    visible to all.

    rank: number of this process.
    world: number of processes.
    device: where this rank computes; None leaves the choice to the caller.
    waiting: process group with a long timeout for waiting, separate from the one that trains.
    """

    rank: int = 0
    world: int = 1
    device: torch.device | None = None
    waiting: dist.ProcessGroup | None = None

    @property
    def first(self) -> bool:
        return self.rank == 0

    def wait(self) -> None:
        """Wait until every rank has called it."""
        if self.world > 1:
            dist.barrier(self.waiting)

    def align(self, *modules: nn.Module) -> None:
        """Copy the first rank's weights and buffers to every rank."""
        if self.world > 1:
            for module in modules:
                for tensor in module.state_dict().values():
                    whole = tensor.contiguous()
                    dist.broadcast(whole, 0)
                    tensor.copy_(whole)

    def executor(self, wanted: Executor) -> Executor:
        """The executor to use: with several ranks "auto" is "eager", because a graph with collectives is opt-in."""
        return "eager" if self.world > 1 and wanted == "auto" else wanted


ALONE = Ranks()


@contextlib.contextmanager
def torchrun_ranks(device: str = "auto") -> Iterator[Ranks]:
    """Join the processes that ``torchrun`` started; ``ALONE`` if this process was started without it.

    When one rank fails the others end too: their next exchange with it fails, and torchrun stops the rest.
    """
    rank, world, local = (int(os.environ.get(name, 0)) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    if world <= 1 or "MASTER_ADDR" not in os.environ:  # some job queues set WORLD_SIZE for other purposes
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
    # Only after success: after a failure it could wait for ranks that have ended.
    dist.destroy_process_group()


def _device_of(name: str, local: int) -> torch.device:
    where = resolve_device(name)
    if where.type != "cuda":
        return where
    if where.index is not None:
        raise HoldfastError(f"--device {name}: each process takes one GPU; use --device cuda")
    if local >= torch.cuda.device_count():
        raise HoldfastError(
            f"process {local + 1} on this machine has no GPU left, there are {torch.cuda.device_count()}; "
            "start torchrun with fewer --nproc_per_node"
        )
    return torch.device("cuda", local)


def _lost_a_rank(error: RuntimeError) -> bool:
    """Whether another rank has ended. Gloo has no exception type; its messages name its files or the connection."""
    text = str(error).lower()
    return isinstance(error, dist.DistError) or "gloo" in text or "connection" in text


def batch_shard(task: Task, options: FitOptions, ranks: Ranks, device: torch.device) -> "BatchShard":
    """This rank's part of each batch of a task; an error if the parts would not be equal."""
    both = batch_shares(len(task.new_indices), len(task.buffer_indices), options.batch_size, options.draw)
    for kind, count in zip(("replayed", "new"), both):
        if count % ranks.world:
            raise HoldfastError(
                f"a batch of task {task.number} has {count} {kind} images, which {ranks.world} ranks cannot share "
                "equally; change batch_size, buffer_per_class or the number of ranks"
            )
    return BatchShard(ranks, *both, gather=options.gather, device=device)


class BatchShard:
    """One rank's part of each batch: equal parts of the replayed and of the new images.

    ranks: which rank this is, of how many.
    replayed, fresh: number of replayed and of new images in a batch.
    gather: whether each rank's loss is that of the whole batch, as in one process. Without it each rank sees only its
        own images, for example as negatives of a contrastive loss.
    device: of the batches.

    The mean of the ranks' losses is minimised.
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
        self.replayed_visible = replayed if self._gathers else self.replayed
        self.part = BatchPart(self._rows, replayed + fresh) if ranks.world > 1 else None

    @property
    def alone(self) -> bool:
        """Whether there is only one process."""
        return self._world == 1

    def local(self, batch: Tensor) -> Tensor:
        """This rank's entries of ``batch``, which has one per image in its last dimension."""
        return batch if self.alone else batch[..., self._rows.to(batch.device)]

    def visible(self, batch: Tensor) -> Tensor:
        """The entries of the images that the method sees on this rank: all of them if features are gathered."""
        return batch if self._gathers else self.local(batch)

    def gathered(self, z: Tensor) -> Tensor:
        """The features of the whole batch, in its order. z: of this rank's images, all of them or only the replayed."""
        if not self._gathers or len(z) == 0:
            return z
        gathered = gather(z)
        return gathered if len(z) < self.size else gathered[self._order]

    def average(self, optimizer: torch.optim.Optimizer, terms: Tensor) -> Tensor:
        """Replace the gradients by their mean over the ranks; returns the mean of the terms. One exchange for all."""
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
    """The x of all ranks, concatenated. Its gradient is the sum over ranks of the gradients of this rank's rows."""
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
        total = grad.float().contiguous()  # in float32: a sum over many ranks loses precision in bf16
        total = total.clone() if total is grad else total
        dist.all_reduce(total)
        start = dist.get_rank() * ctx.rows
        return total[start : start + ctx.rows].to(grad.dtype)


def synchronise_batch_norm(network: nn.Module, device: torch.device) -> None:
    """Replace every batch norm in ``network`` by one with statistics over all ranks; weights and names stay.

    On a GPU it is torch's own, which is fused. torch has none for a CPU.
    """
    if device.type == "cuda":
        nn.SyncBatchNorm.convert_sync_batchnorm(network)
        return
    for parent in list(network.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, _BatchNorm):
                setattr(parent, name, SynchronisedBatchNorm(child))


class SynchronisedBatchNorm(_BatchNorm):
    """Batch norm over all ranks, with the parameters and buffers of ``plain``.

    In training all ranks must call it, with batches of equal size.
    """

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
            # Means and variances, not sums of squares, which cancel. The parts are equal, so plain means are exact.
            means, variances = gather(torch.stack([local_mean, local_var])[None]).unbind(1)
            mean = means.mean(0)
            var = (variances + (means - mean).square()).mean(0)
            self._update_running(mean.detach(), var.detach(), len(means) * x.numel() // x.shape[1])
            shape = [1, -1, *(1 for _ in dims[1:])]
            scale = (var + self.eps).rsqrt() if self.weight is None else (var + self.eps).rsqrt() * self.weight
            y = (wide - mean.view(shape)) * scale.view(shape)
            return (y if self.bias is None else y + self.bias.view(shape)).to(x.dtype)

    def _update_running(self, mean: Tensor, var: Tensor, count: int) -> None:
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        self.num_batches_tracked += 1
        weight = 1 / self.num_batches_tracked if self.momentum is None else torch.tensor(self.momentum)
        self.running_mean.lerp_(mean, weight.to(mean))
        self.running_var.lerp_(var * count / max(count - 1, 1), weight.to(var))
