"""Decoded once, mapped afterwards; anything that changes makes another set."""

import errno
import os
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from holdfast.core.errors import HoldfastError
from holdfast.train.data import cache, decode
from holdfast.train.data.cache import cache_folder, read_listing
from holdfast.train.data.device_images import DeviceImages
from holdfast.train.data.listing import list_class_folders
from made_up_sets import picture


@pytest.fixture
def pictures(tmp_path, monkeypatch):
    monkeypatch.delenv("HOLDFAST_CACHE", raising=False)
    for i in range(10):
        picture(tmp_path / "set" / "ab"[i % 2] / f"{i}.png", i, 12, 12)
    return tmp_path


def read(root, **options):
    return read_listing(list_class_folders(root / "set", "ab"), root, name="set", **{"size": 8, **options})


def equal(one, other):
    assert one.class_names == other.class_names
    assert one.fingerprint == other.fingerprint
    np.testing.assert_array_equal(one.labels, other.labels)
    np.testing.assert_array_equal(one.images, other.images)


def test_the_same_set_with_and_without_the_cache(pictures, monkeypatch):
    cached = read(pictures)
    assert isinstance(cached.images, np.memmap)
    lock, place = sorted((pictures / "holdfast-cache").iterdir())  # and nothing temporary beside it
    assert lock.name == f".{place.name}.lock"
    assert place.name.startswith("set-8-")
    assert {file.name for file in place.iterdir()} == {"images.npy", "labels.npy", "set.json"}
    monkeypatch.setenv("HOLDFAST_CACHE", "off")
    plain = read(pictures)
    assert not isinstance(plain.images, np.memmap)
    equal(cached, plain)
    equal_on_device = DeviceImages(cached).pixels.permute(0, 2, 3, 1).numpy()
    np.testing.assert_array_equal(equal_on_device, plain.images)


def test_the_second_time_nothing_is_decoded(pictures, monkeypatch):
    first = read(pictures)
    monkeypatch.setattr(cache, "decode", lambda *args, **options: pytest.fail("decoded again"))
    equal(read(pictures), first)


def test_another_file_time_size_or_class_is_another_set(pictures):
    before = read(pictures)
    assert read(pictures, size=4).images.shape == (10, 4, 4, 3)
    assert read(pictures, resize=11).fingerprint != before.fingerprint
    file = pictures / "set" / "a" / "0.png"
    picture(file, 99, 12, 12)
    os.utime(file, ns=(1, 1))
    changed = read(pictures)
    assert changed.fingerprint != before.fingerprint
    file.unlink()
    assert len(read(pictures)) == 9


def test_a_damaged_cache_is_made_anew(pictures):
    before = read(pictures)
    whole = before.images.copy()
    [place] = (pictures / "holdfast-cache").glob("set-*")
    for damage in (lambda: os.truncate(place / "images.npy", 200), lambda: (place / "set.json").write_text("{")):
        damage()
        np.testing.assert_array_equal(read(pictures).images, whole)


def test_a_killed_decoding_leaves_nothing_to_be_read(pictures, monkeypatch):
    def killed(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(cache, "canonical_order", killed)
    with pytest.raises(KeyboardInterrupt):
        read(pictures)
    monkeypatch.undo()
    assert len(read(pictures)) == 10


READ_BESIDE_ANOTHER = """
import sys, time
from pathlib import Path
from holdfast.train.data import cache
from holdfast.train.data.listing import list_class_folders

root, own, other = Path(sys.argv[1]), *sys.argv[2:]
plain = cache.decode

def slow(*args, **options):
    (root / f"decoded-{own}").touch()
    end = time.monotonic() + 60
    while not (root / f"ready-{other}").exists() and time.monotonic() < end:
        time.sleep(0.01)
    time.sleep(1.0)  # the other one now decodes as well, or waits
    return plain(*args, **options)

cache.decode = slow
(root / f"ready-{own}").touch()
print(cache.read_listing(list_class_folders(root / "set", "ab"), root, name="set", size=8).fingerprint)
"""


def test_of_two_processes_one_decodes_and_the_other_finds_it(pictures):
    started = [
        subprocess.Popen(
            [sys.executable, "-c", READ_BESIDE_ANOTHER, str(pictures), own, other],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for own, other in ("12", "21")
    ]  # fmt: skip
    told = [process.communicate(timeout=120) for process in started]
    assert [process.returncode for process in started] == [0, 0], told
    assert len(list(pictures.glob("decoded-*"))) == 1
    assert {out.strip() for out, _ in told} == {read(pictures).fingerprint}
    lock, entry = sorted((pictures / "holdfast-cache").iterdir())
    assert (lock.name, lock.stat().st_size, entry.is_dir()) == (f".{entry.name}.lock", 0, True)


def test_a_bad_file_among_many_is_named_and_stops_the_rest(tmp_path, monkeypatch):
    files = [tmp_path / f"{i}.png" for i in range(40)]
    for i, file in enumerate(files):
        picture(file, i, 8, 8)
    files[0].write_bytes(b"no image")
    monkeypatch.setattr(decode, "FILES_PER_TASK", 1)
    with pytest.raises(HoldfastError, match=r"0\.png"):
        decode.decode(files, size=8, colour="rgb")


def test_resize_then_centre(tmp_path):
    pixels = np.zeros((20, 40, 3), np.uint8)
    pixels[5:15, 15:25] = 255  # the middle, which is all that is left after scaling 20 to 20 and cutting 10
    Image.fromarray(pixels).save(tmp_path / "a.png")
    assert (decode.decode([tmp_path / "a.png"], size=10, resize=20, colour="rgb") == 255).all()
    with pytest.raises(HoldfastError, match="resize must be at least the size of 10, got 9"):
        decode.decode([tmp_path / "a.png"], size=10, resize=9, colour="rgb")


def test_what_a_killed_decoding_left_is_removed_and_other_sets_are_not_touched(pictures):
    code = (
        "import os, sys; from pathlib import Path; from holdfast.train.data import cache; "
        "from holdfast.train.data.listing import list_class_folders; "
        "cache.canonical_order = lambda *args, **options: os._exit(9); root = Path(sys.argv[1]); "
        "cache.read_listing(list_class_folders(root / 'set', 'ab'), root, name='set', size=8)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(pictures)], check=False, timeout=120).returncode == 9
    [left] = (pictures / "holdfast-cache").glob(".tmp-*")
    another = left.with_name(".tmp-set-16-0123-abc")  # of another set, which another process may be decoding
    another.mkdir()
    read(pictures)
    assert list((pictures / "holdfast-cache").glob(".tmp-*")) == [another]


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="this system cannot allocate disk space")
def test_a_full_disk_is_one_error(pictures, monkeypatch):
    """Space is allocated before the memory-mapped file is written to, which would end the process by a signal."""

    def full(handle, offset, length):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(HoldfastError, match=r"cannot be written \(No space left.*set HOLDFAST_CACHE to another folder"):
        read(pictures)
    assert not list((pictures / "holdfast-cache").glob("[!.]*"))


def test_where_the_cache_is(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_CACHE", str(tmp_path / "elsewhere"))
    assert cache_folder(tmp_path) == tmp_path / "elsewhere"
    monkeypatch.setenv("HOLDFAST_CACHE", "off")
    assert cache_folder(tmp_path) is None
    monkeypatch.delenv("HOLDFAST_CACHE")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert cache_folder(tmp_path) is None


def test_a_place_that_cannot_be_written_is_named(pictures, monkeypatch):
    (pictures / "file").touch()
    monkeypatch.setenv("HOLDFAST_CACHE", str(pictures / "file" / "cache"))
    with pytest.raises(HoldfastError, match=r"cannot be written.*set HOLDFAST_CACHE to another folder"):
        read(pictures)
