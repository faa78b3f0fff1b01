"""The most of a device that was in use while runs went on, whichever process they were in."""

import threading
import time
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    import torch

    from holdfast.recipes.sweep import Watch

LOOK_SECONDS = 1.0


class PeakMemory:
    """Passes events on and looks at the device meanwhile, at most once in ``LOOK_SECONDS``.

    It sees the device as a whole, with what other programs keep there; a peak between two looks is not seen.
    """

    def __init__(self, device: "torch.device", watch: "Watch") -> None:
        self.bytes = 0
        self._device, self._watch = device, watch
        self._lock = threading.Lock()
        self._next = time.monotonic()

    def __call__(self, name: str, event: dict[str, Any]) -> None:
        if self._device.type == "cuda":
            self._look()
        self._watch(name, event)

    def _look(self) -> None:
        import torch

        with self._lock:
            if time.monotonic() < self._next:
                return
            self._next = time.monotonic() + LOOK_SECONDS
            free, total = torch.cuda.mem_get_info(self._device)
            self.bytes = max(self.bytes, total - free)

    def say(self, predicted: int | None) -> None:
        """One line on stderr, where anything was seen."""
        if self.bytes:
            beside = f" ({predicted / 1e9:.2f} GB predicted)" if predicted is not None else ""
            typer.echo(f"at most {self.bytes / 1e9:.2f} GB of the device in use{beside}", err=True)
