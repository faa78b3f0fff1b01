"""A disk cache of decoded images: a set of image files is decoded once and memory-mapped afterwards.

If several processes need the same set, one decodes it and the others wait for it.
"""

import hashlib
import os
import shutil
from pathlib import Path

import numpy as np

from holdfast.core.errors import HoldfastError
from holdfast.core.file_lock import locked
from holdfast.core.storage import TEMPORARY, read_json, replacing_folder, write_json
from holdfast.train.data.decode import decode
from holdfast.train.data.images import ImageSet, canonical, canonical_order
from holdfast.train.data.listing import FileListing

VARIABLE = "HOLDFAST_CACHE"
OFF = "off"
FORMAT = 1
"""Part of every cache key. Raise it when decoding gives different pixels than before."""

COPY_ROWS = 1024


def read_listing(listing: FileListing, root: Path, *, name: str, size: int, resize: int | None = None) -> ImageSet:
    """The listed files as an ``ImageSet`` in RGB: memory-mapped from the cache, decoded first if they are not in it.

    root: the data root; the cache is in it by default (``cache_folder``).
    name: name of the set, for the cache folder and for progress.
    size, resize: see ``decode``.

    The cache key is a hash of the files' names, sizes and times, the labels and the decoding options, so that any
    change gives a new entry. If there is no cache folder, the images are decoded into memory.
    """
    folder = cache_folder(root)
    if folder is None:
        label = name if os.environ.get(VARIABLE) == OFF else _uncached_name(name)
        decoded = decode(listing.files, size=size, resize=resize, colour="rgb", name=label)
        return canonical(decoded, listing.labels, listing.class_names, source=str(listing.source))
    entry = folder / f"{name}-{size}-{_key(listing, size, resize)}"
    images = _read(entry)
    if images is None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with locked(entry.with_name(f".{entry.name}.lock")):
                if _read(entry) is None:  # another process may have written it while this one waited
                    _write(entry, listing, name, size, resize)
        except OSError as error:
            raise HoldfastError(
                f"{entry}: cannot be written ({error.strerror}); set {VARIABLE} to another folder, or to {OFF}"
            ) from error
        images = _read(entry)
    if images is None:
        raise HoldfastError(f"{entry}: just written, but not readable; set {VARIABLE} to another folder, or to {OFF}")
    return images


def cache_folder(root: Path) -> Path | None:
    """The folder of the cache: HOLDFAST_CACHE, or ``holdfast-cache`` in the data root.

    None if HOLDFAST_CACHE is ``off`` or the data root is not writable.
    """
    named = os.environ.get(VARIABLE)
    if named:
        return None if named == OFF else Path(named).expanduser()
    return root / "holdfast-cache" if os.access(root, os.W_OK) else None


def _uncached_name(name: str) -> str:
    """The name that progress shows, with the reason why every run decodes again."""
    return f"{name} (not cached: the data root is not writable; set {VARIABLE} to a folder that is)"


def _key(listing: FileListing, size: int, resize: int | None) -> str:
    options = (FORMAT, size, resize, "rgb", listing.class_names)
    key = hashlib.blake2b(repr(options).encode(), digest_size=16)
    key.update(listing.labels.astype("<i8").tobytes())
    source = str(listing.source)
    for file in map(str, listing.files):
        try:
            status = os.stat(file)
        except OSError as error:
            raise HoldfastError(f"{file}: not readable ({error.strerror})") from error
        key.update(f"{file.removeprefix(source)}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    return key.hexdigest()


def _read(entry: Path) -> ImageSet | None:
    """The cached set with memory-mapped images; None if it is absent or damaged."""
    if not (entry / "set.json").is_file():
        return None
    try:
        record = read_json(entry / "set.json")
        labels = np.load(entry / "labels.npy", allow_pickle=False)
        # Copy on write: torch warns about read-only arrays.
        images = np.load(entry / "images.npy", mmap_mode="c", allow_pickle=False)
        cached = ImageSet(images, labels, tuple(record["class_names"]), record["fingerprint"])
    except (HoldfastError, OSError, ValueError, KeyError, TypeError, EOFError):
        return None
    return cached if len(images) == len(labels) else None


def _write(entry: Path, listing: FileListing, name: str, size: int, resize: int | None) -> None:
    """Decode and sort on disk, so that the set need not fit in memory."""
    shape = (len(listing), size, size, 3)
    prefix = f"{TEMPORARY}{entry.name}-"
    for left in entry.parent.glob(f"{prefix}*"):  # by a killed process: the lock keeps others out
        shutil.rmtree(left, ignore_errors=True)
    with replacing_folder(entry, prefix=prefix) as folder:
        decoded = _new_array(folder / "decoded.npy", shape)
        decode(listing.files, size=size, resize=resize, colour="rgb", into=decoded, name=name)
        order, fingerprint = canonical_order(decoded, listing.labels, listing.class_names, source=str(listing.source))
        ordered = _new_array(folder / "images.npy", shape)
        for start in range(0, len(order), COPY_ROWS):
            ordered[start : start + COPY_ROWS] = decoded[order[start : start + COPY_ROWS]]
        ordered.flush()
        del decoded, ordered
        (folder / "decoded.npy").unlink()
        np.save(folder / "labels.npy", listing.labels[order], allow_pickle=False)
        write_json(
            folder / "set.json",
            {
                "class_names": list(listing.class_names),
                "fingerprint": fingerprint,
                "source": str(listing.source),
                "size": size,
                "resize": resize,
            },
        )


def _new_array(file: Path, shape: tuple[int, ...]) -> np.memmap:
    """A memory-mapped array with its disk space allocated: writing to a map on a full disk kills the process."""
    array = np.lib.format.open_memmap(file, "w+", np.uint8, shape)
    if hasattr(os, "posix_fallocate"):  # not on macOS
        with file.open("r+b") as opened:
            os.posix_fallocate(opened.fileno(), 0, file.stat().st_size)
    return array
