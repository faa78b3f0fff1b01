"""Models that embed images, or vectors by a trained head: the one place outside ``holdfast.train`` that uses torch.

A gallery or ``embed`` imports this file when it embeds for the first time. Arrays go in and arrays come out.
"""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.core.errors import HoldfastError, UnavailableError, how_to_install
from holdfast.core.process_settings import ProcessSetting
from holdfast.core.storage import read_json
from holdfast.embedders.model_folder import CONFIG_FILE
from holdfast.embedders.model_inputs import ModelInput, model_input_from_json

try:
    import torch

    from holdfast.train.devices import resolve_device
    from holdfast.train.encoders import Encoder
    from holdfast.train.encoders.encode_loop import batch_size_for
except ImportError as error:
    needs = f"a model that embeds needs {error.name} here: {how_to_install('train')}"
    raise HoldfastError(f"{needs}; or give vectors that the model made elsewhere") from None


class ImageEncoder:
    """A model on a device.

    encoder: with a preprocess.
    device: as torch names it; ``auto`` is the GPU if there is one.
    name: the hash of its weights; None if it has none or was not read from a folder.
    """

    def __init__(self, encoder: Encoder, device: str = "auto", *, name: str | None = None) -> None:
        if encoder.preprocess is None:
            raise HoldfastError(
                "the encoder: has no preprocess, so it cannot embed images or vectors; save it with one"
            )
        self._device = resolve_device(device)
        with _explained(self._device):
            self._encoder = encoder.to(self._device)
        self.name = name
        self.input: ModelInput = model_input_from_json(encoder.preprocess.to_json())  # sent to processes without torch
        self.dim = encoder.embedding_dim

    @classmethod
    def load(cls, model: "Encoder | str | Path", device: str = "auto") -> "ImageEncoder":
        """A saved model, or an encoder in memory, on a device."""
        if isinstance(model, Encoder):
            return cls(model, device)
        folder, encoder = model, Encoder.from_pretrained(model)
        if encoder.preprocess is None:
            raise HoldfastError(f"{folder}: this model has no preprocess, so it cannot embed images; save it with one")
        name = str(read_json(Path(folder) / CONFIG_FILE)["weights_sha256"]) if encoder.state_dict() else None
        return cls(encoder, device, name=name)

    @property
    def device(self) -> str:
        return str(self._device)

    @property
    def on_gpu(self) -> bool:
        return self._device.type == "cuda"

    @property
    def batch_size(self) -> int:
        """Items of one forward pass; a search by image waits for at most one pass."""
        return batch_size_on(self.device, self.input)

    def embed(self, arrays: np.ndarray, *, exact: bool = True) -> np.ndarray:
        """Unit features, float32 N x dim; a zero feature stays zero.

        arrays: what ``input.arrays`` returned for N items.
        exact: on a GPU, multiply float32 numbers in convolutions as float32. torch's default, TF32, keeps 10 bits of
            each: the same image then gets another vector with another batch size, and scores differ by about 1e-4 from
            those of the CPU.
        """
        with _explained(self._device), _NO_TF32 if exact and self.on_gpu else contextlib.nullcontext():
            features = self._encoder.encode(arrays, batch_size=max(1, len(arrays)), device=self._device)
        return np.asarray(features.numpy())


def batch_size_on(device: str, taken: ModelInput) -> int:
    """Items of one forward pass that suit a device and the size of an input."""
    return batch_size_for(torch.device(device), taken.input_shape)


def checked_device(device: str) -> str:
    """The name of a device that exists; ``auto`` becomes the GPU if there is one."""
    return str(resolve_device(device))


def expand_devices(device: str | Sequence[str], processes: int = 1) -> list[str]:
    """The device of each process.

    device: names, also separated by commas. ``cuda`` (and ``auto`` with a GPU) is all GPUs that torch sees.
    processes: on the CPU.
    """
    names = device if isinstance(device, list | tuple) else str(device).split(",")
    devices = [resolve_device(str(name).strip()) for name in names]
    if len(devices) == 1 and devices[0].type == "cpu":
        return [str(devices[0])] * processes
    if processes > 1:
        raise HoldfastError("processes go with the CPU; on GPUs there is one process for each")
    if len(devices) == 1 and devices[0].type == "cuda" and devices[0].index is None:
        return [f"cuda:{index}" for index in range(torch.cuda.device_count())]
    if len(set(devices)) < len(devices):
        raise HoldfastError(f"device {device}: the same device twice")
    return [str(one) for one in devices]


def thread_count() -> int:
    """Threads that one forward pass uses on the CPU."""
    return torch.get_num_threads()


def set_thread_count(threads: int) -> None:
    """Let forward passes of this process use so many threads."""
    torch.set_num_threads(threads)


@contextlib.contextmanager
def _explained(device: torch.device) -> Iterator[None]:
    """Report a full GPU memory in one line. Other programs may use it too, so the same call may work later."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise UnavailableError(
            f"{device}: not enough free memory to embed; stop other programs that use it, or choose another device "
            "(HOLDFAST_DEVICE=cpu, in Python device='cpu')"
        ) from error


_CONVOLUTIONS: Any = torch.backends.cudnn.conv  # type: ignore[attr-defined]
_NO_TF32 = ProcessSetting(
    lambda: _CONVOLUTIONS.fp32_precision,
    lambda value: setattr(_CONVOLUTIONS, "fp32_precision", value),
    lambda _: "ieee",
)
