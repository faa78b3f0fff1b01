"""The lists of samples beside a model that Holdfast trained: held out from training, and kept for replay."""

from dataclasses import dataclass
from pathlib import Path

from holdfast.core.errors import HoldfastError
from holdfast.core.storage import read_json

BUFFER, HELD_OUT = "buffer", "held_out"


@dataclass(frozen=True)
class SampleList:
    """samples: class, path and sha256 of each sample. embedded: whether their pixels or vectors are saved too."""

    samples: list[tuple[str, str, str]]
    embedded: bool


def read_sample_list(folder: Path, stem: str) -> SampleList | None:
    """The list ``stem`` (``BUFFER`` or ``HELD_OUT``) of a model folder; None if the folder has none."""
    path = folder / f"{stem}.json"
    if not path.exists():
        return None
    record = read_json(path)
    try:
        samples = [(item["class"], item["path"], item["sha256"]) for item in record["images"]]
        return SampleList(samples, bool(record["embedded"]))
    except (KeyError, TypeError):
        raise HoldfastError(f"{path}: not a list of saved samples") from None
