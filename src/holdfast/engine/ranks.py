"""Several processes that train one model: who is who, and when they wait for each other."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

from holdfast.devices import resolve_device
from holdfast.engine.options import Executor
from holdfast.errors import HoldfastError

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
