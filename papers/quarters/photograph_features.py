"""Features of photographs under an ImageNet EfficientNet-lite: pooled, 1,280 numbers each, computed by onnxruntime.

On two cores onnxruntime is three times as fast as torch for these networks. The studies that train the network itself
read the photographs as pixels (``write_pictures``).
"""

import importlib
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from holdfast.core.errors import HoldfastError
from papers.quarters.efficientnet_lite import pretrained
from papers.quarters.study_data import SIDE

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
    except ImportError as error:
        raise HoldfastError(f"{error}; pip install onnxruntime") from error
    trained = pretrained(network).eval()
    side = SIDES[network]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "network.onnx")
        torch.onnx.export(
            trained, (torch.zeros(1, 3, side, side),), file, input_names=["pixels"],
            output_names=["features"], dynamic_axes={"pixels": {0: "n"}, "features": {0: "n"}}, dynamo=False,
        )  # fmt: skip
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        session = onnxruntime.InferenceSession(file.read_bytes(), options, providers=["CPUExecutionProvider"])
    return lambda pixels: session.run(None, {"pixels": pixels})[0]


def _batches(files: Sequence[Path], side: int) -> Iterator[np.ndarray]:
    for begin in range(0, len(files), BATCH):
        yield np.stack([_pixels(file, side) for file in files[begin : begin + BATCH]])


def _pixels(file: Path, side: int) -> np.ndarray:
    """With ImageNet's mean and deviation: 3 x side x side."""
    return ((_square(file, side).astype(np.float32) / 255 - MEAN) / STD).transpose(2, 0, 1)


def _square(file: Path, side: int) -> np.ndarray:
    """The largest square in the middle, scaled to ``side``: side x side x 3 bytes."""
    with Image.open(file) as opened:
        picture = opened.convert("RGB")
    short = min(picture.size)
    left, top = ((length - short) // 2 for length in picture.size)
    square = picture.crop((left, top, left + short, top + short)).resize((side, side), Image.Resampling.BICUBIC)
    return np.asarray(square)


def write_pictures(photographs: Path, out: Path, *, threads: int = 2, say: Callable[[str], None] = print) -> None:
    """Write ``OUT/pictures.npy`` (N x SIDE x SIDE x 3 bytes) and ``OUT/pictures-labels.npz``; files there are kept.

    photographs: folder with ``train/CLASS/*.jpg`` and ``test/CLASS/*.jpg``.
    """
    if (out / "pictures-labels.npz").exists():
        return
    out.mkdir(parents=True, exist_ok=True)
    listed = {split: photograph_files(photographs, split) for split in SPLITS}
    files = [file for split in SPLITS for file in listed[split]]
    pixels = np.lib.format.open_memmap(out / "pictures.npy", "w+", np.uint8, (len(files), SIDE, SIDE, 3))
    with ThreadPoolExecutor(threads) as pool:
        for row, square in enumerate(pool.map(lambda file: _square(file, SIDE), files)):
            pixels[row] = square
            if row % 2000 == 1999:
                say(f"{row + 1:,} of {len(files):,} photographs")
    pixels.flush()
    labels = np.array([file.parent.name for file in files])
    is_test = np.repeat([False, True], [len(listed[split]) for split in SPLITS])
    np.savez(out / "pictures-labels.npz", labels=labels, is_test=is_test)
    say(f"{out / 'pictures.npy'}: {len(files):,} photographs")
