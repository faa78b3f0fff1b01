"""Embed shards here, in one process or in several: one for each GPU, or several on the CPU."""

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path

from holdfast.core.errors import HoldfastError
from holdfast.embedders.batches import EmbeddedItems, decoded_batches, embed_batches
from holdfast.embedders.image_encoder import ImageEncoder, set_thread_count, thread_count
from holdfast.embedders.source_items import Items

Embedded = tuple[int, EmbeddedItems]
"""The number of a shard, and its features."""


@dataclass(frozen=True)
class ShardWork:
    """Shards to embed.

    model: the model's folder.
    shards: number and items of each.
    batch_size: items of one forward pass.
    """

    model: Path
    shards: Sequence[tuple[int, Items]]
    batch_size: int


def embed_here(encoder: ImageEncoder, work: ShardWork, on_items: Callable[[int], None]) -> Iterator[Embedded]:
    """Embed the shards one after the other in this process. The first items of a shard are decoded beside the last.

    on_items: called with the number of items of each batch.
    """
    parts = (items for _, items in work.shards)
    with closing(decoded_batches(encoder.input, parts, work.batch_size)) as batches:
        for number, items in work.shards:
            done = 0

            def count(so_far: int) -> None:
                nonlocal done
                on_items(so_far - done)
                done = so_far

            yield number, embed_batches(encoder, len(items), batches, progress=count)


def embed_in_processes(work: ShardWork, devices: Sequence[str], on_items: Callable[[int], None]) -> Iterator[Embedded]:
    """Embed the shards in one process for each of ``devices``, in any order.

    A process that ends early is an error: the shards that were yielded are complete, the others are not.
    """
    context = multiprocessing.get_context("spawn")
    threads = max(1, thread_count() // len(devices))
    processes, open_ends = [], []
    try:
        for place, device in enumerate(devices):
            own = ShardWork(work.model, work.shards[place :: len(devices)], work.batch_size)
            here, there = context.Pipe(duplex=False)
            process = context.Process(target=_work, args=(own, device, threads, there), daemon=True)
            process.start()
            there.close()
            processes.append(process)
            open_ends.append(here)
        left: list[Connection] = list(open_ends)
        while left:
            for end in wait(left):
                assert isinstance(end, Connection)
                message = _received(end, processes[open_ends.index(end)])
                if message is None:
                    left.remove(end)
                elif isinstance(message, int):
                    on_items(message)
                elif isinstance(message, str):
                    raise HoldfastError(message)
                else:
                    yield message
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.join()
        for end in open_ends:
            end.close()


def _received(end: Connection, process: "multiprocessing.process.BaseProcess") -> int | str | Embedded | None:
    """A message of a process: items done, an error, the features of a shard, or None at the end."""
    try:
        message: int | str | Embedded | None = end.recv()
        return message
    except (EOFError, OSError):
        process.join()
        raise HoldfastError(
            f"a process that embeds ended with status {process.exitcode}; finished shards are kept: "
            "run the same command again"
        ) from None


def _work(work: ShardWork, device: str, threads: int, out: Connection) -> None:
    """The main function of a process."""
    set_thread_count(threads)
    try:
        for shard in embed_here(ImageEncoder.load(work.model, device), work, out.send):
            out.send(shard)
        out.send(None)
    except HoldfastError as error:
        out.send(str(error))
    except KeyboardInterrupt:
        pass  # the parent process reports it
