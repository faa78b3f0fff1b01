"""Training images: whole on the device, or in host memory or on disk with batches copied to the device ahead of use.

Both kinds satisfy ``Images`` and give the same numbers in the same memory layout. ``place_images`` chooses one.
"""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from holdfast.train.cuda_streams import SideStream
from holdfast.train.data.images import ImageSet

Placement = Literal["auto", "device", "stream"]

SHARE_OF_FREE_MEMORY = 0.5
"""The largest share of the GPU's free memory that the images may take; the rest is for the network."""

COPY_BYTES = 64 * 2**20
"""Bytes copied to the device at a time: a memory-mapped set may be larger than the host's memory."""

RING_SLOTS = 4
"""Batches on the device at a time: one in use, the others being copied."""


class BatchSource(Protocol):
    """Gives each training step its batch."""

    def batch(self, indices: Tensor, step: Tensor) -> Tensor:
        """The batch of ``step``, B x C x H x W: the images at ``indices``."""

    def prefetched(self, run_step: Callable[[], None], rows: Iterator[np.ndarray], first: int) -> Callable[[], None]:
        """``run_step`` preceded by whatever brings its batch to the device.

        rows: indices of the batches of step ``first`` and of all steps after it.
        """


class Images(Protocol):
    """Images and labels for training, read by index."""

    @property
    def labels(self) -> Tensor: ...

    @property
    def device(self) -> torch.device: ...

    @property
    def height_width(self) -> tuple[int, int]: ...

    @property
    def streamed(self) -> bool:
        """Whether the images stay off the device and batches are copied to it."""

    def __len__(self) -> int: ...

    def __getitem__(self, indices: Tensor) -> Tensor:
        """B x C x H x W for a tensor of B indices."""

    def batch_source(self, batch_size: int) -> BatchSource: ...

    def prefetch_bytes(self, batch_size: int) -> int:
        """Device memory that training with this batch size needs for images, besides the images on the device."""


def place_images(images: ImageSet, device: torch.device, placement: Placement = "auto") -> Images:
    """The images on the device, or streamed to it.

    placement: "device", "stream", or "auto", which streams sets larger than half of the GPU's free memory.
    """
    if placement == "auto" and device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        placement = "stream" if images.images.nbytes > SHARE_OF_FREE_MEMORY * free else "device"
    return StreamedImages(images, device) if placement == "stream" else DeviceImages(images, device)


class DeviceImages:
    """All images of a set on one device, N x C x H x W in their own dtype. Reading a batch is one gather."""

    streamed = False

    def __init__(self, images: ImageSet, device: torch.device | str = "cpu") -> None:
        count, height, width, channels = images.images.shape
        dtype = torch.float32 if images.holds_vectors else torch.uint8
        self.pixels = torch.empty((count, channels, height, width), dtype=dtype, device=device)
        rows = max(1, COPY_BYTES // (height * width * channels * dtype.itemsize))
        for start in range(0, count, rows):
            part = torch.from_numpy(images.images[start : start + rows]).to(device)
            self.pixels[start : start + len(part)] = part.permute(0, 3, 1, 2)
        self.labels = torch.from_numpy(images.labels).to(device)

    @property
    def device(self) -> torch.device:
        return self.pixels.device

    @property
    def height_width(self) -> tuple[int, int]:
        return self.pixels.shape[2], self.pixels.shape[3]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, indices: Tensor) -> Tensor:
        """B x C x H x W for a tensor of B indices on the same device."""
        return self.pixels[indices]

    def batch_source(self, batch_size: int) -> "DeviceImages":
        return self

    def prefetch_bytes(self, batch_size: int) -> int:
        return 0

    def batch(self, indices: Tensor, step: Tensor) -> Tensor:
        return self[indices]

    def prefetched(self, run_step: Callable[[], None], rows: Iterator[np.ndarray], first: int) -> Callable[[], None]:
        return run_step


class StreamedImages:
    """Images that stay in host memory or on disk (a memory-mapped array); only the batches needed are copied."""

    streamed = True

    def __init__(self, images: ImageSet, device: torch.device | str = "cpu") -> None:
        self.host = images.images
        self.device = torch.device(device)
        self.labels = torch.from_numpy(images.labels).to(device)

    @property
    def height_width(self) -> tuple[int, int]:
        return self.host.shape[1], self.host.shape[2]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, indices: Tensor) -> Tensor:
        """B x C x H x W for a tensor of B indices. Waits for the copy; training steps use ``batch_source``."""
        return _channels_first(torch.from_numpy(self.host[indices.cpu().numpy()]).to(self.device))

    def batch_source(self, batch_size: int) -> "BatchRing":
        return BatchRing(self, batch_size)

    def prefetch_bytes(self, batch_size: int) -> int:
        return RING_SLOTS * batch_size * self.host[0].nbytes


class BatchRing:
    """A few device buffers for the batches of one training; step n reads slot n modulo ``RING_SLOTS``.

    A slot is refilled after the step that reads it has run. On a GPU the copy stream waits for that step; the host
    does not. The host waits only for a batch that is not gathered yet and for pinned memory that is being copied.
    """

    def __init__(self, images: StreamedImages, batch_size: int) -> None:
        self._host = images.host
        self._on_gpu = images.device.type == "cuda"
        shape = (RING_SLOTS, batch_size, *images.host.shape[1:])
        dtype = torch.float32 if images.host.dtype == np.float32 else torch.uint8
        self.slots = torch.empty(shape, dtype=dtype, device=images.device)
        self._staged = torch.empty(shape, dtype=dtype, pin_memory=True) if self._on_gpu else self.slots
        if self._on_gpu:
            self._side = SideStream(images.device)
            self._stream = self._side.stream
            self.slots.record_stream(self._stream)  # the allocator must not reuse the memory during a copy
            self._copied = [torch.cuda.Event() for _ in range(RING_SLOTS)]
            self._used = [torch.cuda.Event() for _ in range(RING_SLOTS)]

    def batch(self, indices: Tensor, step: Tensor) -> Tensor:
        """The batch of a step. It must be in its slot already: ``indices`` are not looked up."""
        return _channels_first(self.slots.index_select(0, step.remainder(RING_SLOTS).view(1)).squeeze(0))

    def prefetched(self, run_step: Callable[[], None], rows: Iterator[np.ndarray], first: int) -> Callable[[], None]:
        return _PrefetchedStep(run_step, self, rows, first)

    def fill(self, slot: int, rows: np.ndarray) -> None:
        """Gather a batch and start its copy; called in the background thread."""
        if self._on_gpu:
            self._copied[slot].synchronize()
        np.take(self._host, rows, axis=0, out=self._staged[slot].numpy(), mode="clip")  # "raise" would copy it twice
        if self._on_gpu:
            with torch.cuda.stream(self._stream):
                self._stream.wait_event(self._used[slot])
                self.slots[slot].copy_(self._staged[slot], non_blocking=True)
                self._copied[slot].record()

    def wait_for(self, slot: int) -> None:
        """Make the current stream wait for the copy into the slot."""
        if self._on_gpu:
            torch.cuda.current_stream(self.slots.device).wait_event(self._copied[slot])

    def release(self, slot: int) -> None:
        """Record that the step just started is the last one to read the slot."""
        if self._on_gpu:
            self._used[slot].record(torch.cuda.current_stream(self.slots.device))


class _PrefetchedStep:
    """Runs the steps in order while one background thread fetches the batches of the next ones."""

    def __init__(self, run_step: Callable[[], None], ring: BatchRing, rows: Iterator[np.ndarray], first: int) -> None:
        self._run_step, self._ring, self._rows = run_step, ring, rows
        self._pool = ThreadPoolExecutor(1)
        self._pending: deque[tuple[int, Future[None]]] = deque()
        self._next = first
        for _ in range(RING_SLOTS):
            self._fetch()

    def __call__(self) -> None:
        slot, fetched = self._pending.popleft()
        fetched.result()
        self._ring.wait_for(slot)
        self._run_step()
        self._ring.release(slot)
        self._fetch()

    def _fetch(self) -> None:
        rows = next(self._rows, None)
        if rows is not None:
            slot = self._next % RING_SLOTS
            self._pending.append((slot, self._pool.submit(self._ring.fill, slot, rows)))
            self._next += 1


def _channels_first(images: Tensor) -> Tensor:
    """N x H x W x C -> N x C x H x W, contiguous as ``DeviceImages`` stores it."""
    return images.permute(0, 3, 1, 2).contiguous()
