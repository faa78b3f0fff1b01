"""Decoded images kept on disk: a set of files is decoded once, and from then on only mapped into memory.

One process at a time: the others wait, and find what the first has made.
"""

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from holdfast.data.decode import decode
from holdfast.data.images import ImageSet, canonical, canonical_order
from holdfast.data.listing import Listing
from holdfast.errors import HoldfastError
from holdfast.pixels import Colour
from holdfast.storage import read_json, replacing_folder, write_json

VARIABLE = "HOLDFAST_CACHE"
OFF = "off"
FORMAT = 1
"""Part of every key: to be raised when decoding gives other pixels than before."""

ROWS = 1024


def read_listing(
    listing: Listing, root: Path, *, name: str, size: int, resize: int | None = None, colour: Colour = "rgb"
) -> ImageSet:
    """The listed files as an ``ImageSet``, decoded or, if that was done before, mapped from the cache.

    A cached set is found by a hash of the files' names, sizes and times, the labels and how they are decoded: any
    change makes another one. Of several processes that want it at once, one decodes and the others wait.
    Without a place for it (``cache_folder``) the images are decoded into memory.
    """
    folder = cache_folder(root)
    if folder is None:
        images = decode(listing.files, size=size, resize=resize, colour=colour, name=_not_kept(name))
        return canonical(images, listing.labels, listing.class_names, source=str(listing.source))
    place = folder / f"{name}-{size}-{_key(listing, size, resize, colour)}"
    kept = _kept(place)
    if kept is None:
        try:
            with own_turn(place):
                if _kept(place) is None:  # another process may have made it while this one waited
                    _write(place, listing, name, size, resize, colour)
        except OSError as error:
            raise HoldfastError(
                f"{place}: cannot be written ({error.strerror}); set {VARIABLE} to another folder, or to {OFF}"
            ) from error
        kept = _kept(place)
    if kept is None:
        raise HoldfastError(f"{place}: just written, but not readable; set {VARIABLE} to another folder, or to {OFF}")
    return kept


def cache_folder(root: Path) -> Path | None:
    """Where decoded sets are kept: HOLDFAST_CACHE, else ``holdfast-cache`` in the data root.

    None where HOLDFAST_CACHE is ``off`` or the data root cannot be written to.
    """
    named = os.environ.get(VARIABLE)
    if named:
        return None if named == OFF else Path(named).expanduser()
    return root / "holdfast-cache" if os.access(root, os.W_OK) else None


def _not_kept(name: str) -> str:
    """Who did not switch the cache off should know why the same minutes pass at every run."""
    if os.environ.get(VARIABLE) == OFF:
        return name
    return f"{name} (not kept, as the data root cannot be written to; {VARIABLE} names another folder)"


def _key(listing: Listing, size: int, resize: int | None, colour: Colour) -> str:
    key = hashlib.blake2b(repr((FORMAT, size, resize, colour, listing.class_names)).encode(), digest_size=16)
    key.update(listing.labels.astype("<i8").tobytes())
    source = str(listing.source)
    for file in map(str, listing.files):
        try:
            status = os.stat(file)
        except OSError as error:
            raise HoldfastError(f"{file}: not readable ({error.strerror})") from error
        key.update(f"{file.removeprefix(source)}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    return key.hexdigest()


def _kept(place: Path) -> ImageSet | None:
    """The set in the cache, its images still on disk; None where there is none, or only a damaged one."""
    if not (place / "set.json").is_file():
        return None
    try:
        about = read_json(place / "set.json")
        labels = np.load(place / "labels.npy", allow_pickle=False)
        # Copy on write: torch warns about arrays that it must not write to.
        images = np.load(place / "images.npy", mmap_mode="c", allow_pickle=False)
        found = ImageSet(images, labels, tuple(about["class_names"]), about["fingerprint"])
    except (HoldfastError, OSError, ValueError, KeyError, TypeError, EOFError):
        return None
    return found if len(images) == len(labels) else None


def _write(place: Path, listing: Listing, name: str, size: int, resize: int | None, colour: Colour) -> None:
    """Decode and put in canonical order on disk, so that the set need not fit in memory."""
    shape = (len(listing), size, size, 3 if colour == "rgb" else 1)
    with replacing_folder(place) as folder:
        decoded = np.lib.format.open_memmap(folder / "decoded.npy", "w+", np.uint8, shape)
        decode(listing.files, size=size, resize=resize, colour=colour, into=decoded, name=name)
        order, fingerprint = canonical_order(decoded, listing.labels, listing.class_names, source=str(listing.source))
        ordered = np.lib.format.open_memmap(folder / "images.npy", "w+", np.uint8, shape)
        for start in range(0, len(order), ROWS):
            ordered[start : start + ROWS] = decoded[order[start : start + ROWS]]
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


try:
    import fcntl
except ImportError:  # not a POSIX system: there nobody waits
    fcntl = None  # type: ignore[assignment]


@contextlib.contextmanager
def own_turn(place: Path) -> Iterator[None]:
    """Wait until no other process, or thread, has its turn at ``place``; a killed one's ends with it.

    Held by a lock file beside ``place`` that goes with the last holder. On a file system without locks nobody waits.
    """
    if fcntl is None:
        yield
        return
    lock = place.with_name(f".{place.name}.lock")
    lock.parent.mkdir(parents=True, exist_ok=True)
    while True:
        file = lock.open("a")
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        if _still_there(lock, file.fileno()):
            break
        file.close()  # its holder removed it while we waited: whoever comes now waits at another file
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
        file.close()


def _still_there(lock: Path, handle: int) -> bool:
    try:
        return os.path.samestat(os.stat(lock), os.fstat(handle))
    except FileNotFoundError:
        return False
