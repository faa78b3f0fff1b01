"""Small image data and the ways to write it to disk."""

import csv
import io
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

NAMES = ("ant", "bee", "cat")


class Sample:
    """Twelve random 32 x 32 RGB images of three classes, in no particular order."""

    def __init__(self) -> None:
        random = np.random.default_rng(0)
        self.images = random.integers(0, 256, (12, 32, 32, 3), dtype=np.uint8)
        self.labels = np.array([2, 0, 1, 1, 0, 2, 2, 1, 0, 0, 1, 2])
        self.names = NAMES

    def write_npz(self, file: Path, order: np.ndarray | None = None) -> None:
        order = np.arange(len(self.labels)) if order is None else order
        arrays = {"train_x": self.images[order], "train_y": self.labels[order]}
        np.savez(file, **arrays, class_names=np.array(self.names))

    def batches(self, dataset: str) -> dict[str, dict]:
        """The official files of a CIFAR dataset by name; the test split is the first four images."""
        rows = self.images.transpose(0, 3, 1, 2).reshape(-1, 3072)
        labels = self.labels.tolist()
        if dataset == "cifar100":
            named = {b"fine_label_names": [name.encode() for name in self.names]}
            return {
                "train": {b"data": rows, b"fine_labels": labels, b"coarse_labels": [0] * 12},
                "test": {b"data": rows[:4], b"fine_labels": labels[:4], b"coarse_labels": [0] * 4},
                "meta": named,
            }
        parts = np.array_split(np.arange(12), 5)
        files = {
            f"data_batch_{i + 1}": {b"data": rows[part], b"labels": [labels[j] for j in part]}
            for i, part in enumerate(parts)
        }
        files["test_batch"] = {b"data": rows[:4], b"labels": labels[:4]}
        files["batches.meta"] = {b"label_names": [name.encode() for name in self.names]}
        return files

    def write_images(self, top: Path) -> list[tuple[Path, str]]:
        """PNG files under ``top/class/``; gives each file with its class name."""
        written = []
        for i, (image, label) in enumerate(zip(self.images, self.labels)):
            file = top / self.names[label] / f"{(7 * i) % 12}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(file)
            written.append((file, self.names[label]))
        return written


def write_rows(file: Path, rows: list) -> None:
    with file.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows(rows)


def write_archive(file: Path, members: dict[str, bytes]) -> None:
    with tarfile.open(file, "w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))


def pickled(batches: dict[str, dict], folder: str) -> dict[str, bytes]:
    """As the official files are: protocol 2."""
    return {f"{folder}/{name}": pickle.dumps(batch, protocol=2) for name, batch in batches.items()}


@pytest.fixture
def sample() -> Sample:
    return Sample()


@pytest.fixture(name="write_rows")
def write_rows_fixture():
    return write_rows


@pytest.fixture(name="write_archive")
def write_archive_fixture():
    return write_archive


@pytest.fixture(name="pickled")
def pickled_fixture():
    return pickled
