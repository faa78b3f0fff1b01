"""Images that travel with a model: the buffer that is replayed, and those it is judged by."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from holdfast.errors import HoldfastError
from holdfast.storage import read_array, read_json, write_array, write_json
from holdfast.updating.pictures import Picture, Reader


@dataclass(frozen=True, eq=False)
class KeptImages:
    """Pictures by path and hash, and their pixels where these are embedded; new ones only ever join at the end."""

    pictures: tuple[Picture, ...] = ()
    embedded: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.pictures)

    def pixels(self, reader: Reader, what: str) -> np.ndarray:
        """N x H x W x C; refused where a file is gone or not the one that was kept. ``what`` names them."""
        if self.embedded is not None:
            if len(self) and self.embedded.shape[1:] != reader.shape:
                raise HoldfastError(f"{what}: embedded as {self.embedded.shape[1:]}, but {reader.shape} is asked for")
            return self.embedded
        gone = [one.path for one in self.pictures if not one.path.is_file()]
        left = frozenset(self.pictures if gone else self.left(reader).pictures)
        changed = [one.path for one in self.pictures if one not in left]
        for bad, how in ((gone, "gone"), (changed, "changed (sha256 differs)")):
            if bad:
                raise HoldfastError(
                    f"{what}: {len(bad)} of {len(self)} images are {how}, the first is {bad[0]}; put them back, or "
                    "draw others with --buffer-from FOLDER"
                )
        return reader.read(self.pictures)

    def left(self, reader: Reader) -> "KeptImages":
        """Those whose files are still there and unchanged; all of them where they are embedded."""
        return self if self.embedded is not None else KeptImages(tuple(reader.unchanged(self.pictures)))

    def joined(self, pictures: Sequence[Picture], pixels: np.ndarray) -> "KeptImages":
        """With more pictures at the end; ``pixels`` are theirs, kept only where the others' are."""
        embedded = None if self.embedded is None else np.concatenate([self.embedded, pixels])
        return KeptImages((*self.pictures, *pictures), embedded)

    def with_pixels(self, pixels: np.ndarray) -> "KeptImages":
        """Embedded: the files are no longer needed."""
        return replace(self, embedded=pixels)

    def counts(self) -> Counter[str]:
        return Counter(picture.name for picture in self.pictures)

    def save(self, folder: Path, stem: str) -> None:
        items = [{"class": one.name, "path": str(one.path), "sha256": one.sha256} for one in self.pictures]
        write_json(folder / f"{stem}.json", {"embedded": self.embedded is not None, "images": items})
        if self.embedded is not None:
            write_array(folder / f"{stem}.npy", self.embedded)

    @classmethod
    def load(cls, folder: Path, stem: str) -> "KeptImages | None":
        """None where the folder has none."""
        path = folder / f"{stem}.json"
        if not path.exists():
            return None
        record = read_json(path)
        try:
            items = tuple(Picture(item["class"], Path(item["path"]), item["sha256"]) for item in record["images"])
            embedded = read_array(folder / f"{stem}.npy") if record["embedded"] else None
        except (KeyError, TypeError):
            raise HoldfastError(f"{path}: not a record of kept images") from None
        if embedded is not None and len(embedded) != len(items):
            raise HoldfastError(f"{path}: {len(items)} images recorded, {len(embedded)} embedded")
        return cls(items, embedded)
