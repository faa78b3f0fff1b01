"""Training images where the computation is: whole, as they were read, taken by index.

Training images that stay in host memory or on disk; the batches of the coming steps are brought to the device.
"""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from holdfast.cuda_streams import SideStream
from holdfast.data.images import ImageSet

COPIED_AT_ONCE = 64 * 2**20
"""Bytes taken to the device at a time: a set mapped from disk may be larger than the host's memory."""


class DeviceImages:
    """All images of a set on one device, N x C x H x W in their own dtype; a batch is one gather, with no copy."""

    def __init__(self, images: ImageSet, device: torch.device | str = "cpu") -> None:
        count, height, width, channels = images.images.shape
        dtype = torch.float32 if images.holds_vectors else torch.uint8
        self.pixels = torch.empty((count, channels, height, width), dtype=dtype, device=device)
        rows = max(1, COPIED_AT_ONCE // (height * width * channels * dtype.itemsize))
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

    def source(self, batch: int) -> "DeviceImages":
        """What the steps of a training read their batches from: the images themselves."""
        return self

    def bytes_ahead(self, batch: int) -> int:
        """Device memory that a training with such batches takes beside the images."""
        return 0

    def at(self, indices: Tensor, step: Tensor) -> Tensor:
        """The batch of a step."""
        return self[indices]

    def fed(self, run_step: Callable[[], None], rows: Iterator[np.ndarray], first: int) -> Callable[[], None]:
        """A step that finds its batch: here every batch already is where it is needed."""
        return run_step


Placement = Literal["auto", "device", "stream"]

SLOTS = 4
"""Batches on the device at a time: one in use, the others on their way."""

SHARE_OF_FREE = 0.5
"""Of the device's free memory, what the images may take; the rest is for the network."""


def place(images: ImageSet, device: torch.device, placement: Placement = "auto") -> "DeviceImages | StreamedImages":
    """The images on the device, or streamed to it; "auto" streams what would not leave the GPU room to train."""
    if placement == "auto" and device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        placement = "stream" if images.images.nbytes > SHARE_OF_FREE * free else "device"
    return StreamedImages(images, device) if placement == "stream" else DeviceImages(images, device)


class StreamedImages:
    """Reads like ``DeviceImages``, but only what is asked for ever is on the device.

    The array may be memory-mapped: of it, too, only what is asked for is read.
    """

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
        """B x C x H x W for a tensor of B indices; waits for the copy, so it is not for the steps."""
        return _planar(torch.from_numpy(self.host[indices.cpu().numpy()]).to(self.device))

    def source(self, batch: int) -> "Ring":
        return Ring(self, batch)

    def bytes_ahead(self, batch: int) -> int:
        return SLOTS * batch * self.host[0].nbytes


class Ring:
    """A few places on the device for the batches of one training; that of step n is place n modulo ``SLOTS``.

    A place is filled again once the step that read it is done, which on a GPU the copying stream waits for by itself.
    The host waits only where a batch has not been gathered yet, and for pinned memory that is still being copied.
    """

    def __init__(self, images: StreamedImages, batch: int) -> None:
        self._host = images.host
        self._on_gpu = images.device.type == "cuda"
        shape = (SLOTS, batch, *images.host.shape[1:])
        dtype = torch.float32 if images.host.dtype == np.float32 else torch.uint8
        self.places = torch.empty(shape, dtype=dtype, device=images.device)
        self._staged = torch.empty(shape, dtype=dtype, pin_memory=True) if self._on_gpu else self.places
        if self._on_gpu:
            self._side = SideStream(images.device)
            self._stream = self._side.stream
            self.places.record_stream(self._stream)  # not to be handed out again while a copy is on its way
            self._copied = [torch.cuda.Event() for _ in range(SLOTS)]
            self._used = [torch.cuda.Event() for _ in range(SLOTS)]

    def at(self, indices: Tensor, step: Tensor) -> Tensor:
        """The batch of a step, which must be there already: ``indices`` are not looked up."""
        return _planar(self.places.index_select(0, step.remainder(SLOTS).view(1)).squeeze(0))

    def fed(self, run_step: Callable[[], None], rows: Iterator[np.ndarray], first: int) -> Callable[[], None]:
        """``run_step`` with its batches brought before it; rows: those of step ``first`` and all that follow."""
        return _FedStep(run_step, self, rows, first)

    def fill(self, place: int, rows: np.ndarray) -> None:
        """Gather a batch and send it on its way; called in the background."""
        if self._on_gpu:
            self._copied[place].synchronize()
        np.take(self._host, rows, axis=0, out=self._staged[place].numpy(), mode="clip")  # "raise" would copy it twice
        if self._on_gpu:
            with torch.cuda.stream(self._stream):
                self._stream.wait_event(self._used[place])
                self.places[place].copy_(self._staged[place], non_blocking=True)
                self._copied[place].record()

    def arrived(self, place: int) -> None:
        """Let the stream of the steps wait for the copy."""
        if self._on_gpu:
            torch.cuda.current_stream(self.places.device).wait_event(self._copied[place])

    def free(self, place: int) -> None:
        """Say that the step just started is the last to read this place."""
        if self._on_gpu:
            self._used[place].record(torch.cuda.current_stream(self.places.device))


class _FedStep:
    """Runs the steps in order while one thread fetches what the next ones read."""

    def __init__(self, run_step: Callable[[], None], ring: Ring, rows: Iterator[np.ndarray], first: int) -> None:
        self._run_step, self._ring, self._rows = run_step, ring, rows
        self._pool = ThreadPoolExecutor(1)
        self._coming: deque[tuple[int, Future[None]]] = deque()
        self._next = first
        for _ in range(SLOTS):
            self._fetch()

    def __call__(self) -> None:
        place, fetched = self._coming.popleft()
        fetched.result()
        self._ring.arrived(place)
        self._run_step()
        self._ring.free(place)
        self._fetch()

    def _fetch(self) -> None:
        rows = next(self._rows, None)
        if rows is not None:
            place = self._next % SLOTS
            self._coming.append((place, self._pool.submit(self._ring.fill, place, rows)))
            self._next += 1


def _planar(images: Tensor) -> Tensor:
    """N x H x W x C as the host has it -> N x C x H x W, laid out as ``DeviceImages`` would give it."""
    return images.permute(0, 3, 1, 2).contiguous()
