"""Pickles made by an attacker: refused in one line, without a crash, and with memory in proportion to the file."""

import io
import pickle
import random
import tracemalloc

import numpy as np
import pytest

from holdfast.core.errors import HoldfastError
from holdfast.train.data import load_split
from holdfast.train.data.readers.plain_pickle import load_plain

MUTATIONS = 10_000
DTYPE = b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R"  # numpy.dtype("u1", 0, 1)
ARRAY = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
PLAIN_STATE = b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
LARGE = b"B" + (5000).to_bytes(4, "little") + bytes(5000)


def dtype_with(state):
    """A pickled dictionary with an array of 2 bytes, whose dtype gets ``state`` by the instruction BUILD."""
    return b"\x80\x02}U\x04data" + ARRAY + b"(K\x01K\x02\x85" + DTYPE + state + b"\x89U\x02abtbs."


HOSTILE = {
    "dtype with a subarray": dtype_with(b"(K\x03U\x01|" + DTYPE + b"K\x08\x85\x86NNJ\x00\x00\x01\x00K\x01K\x00tb"),
    "dtype with a size": dtype_with(b"(K\x03U\x01|(U\x02u1K\x04tNNJ\xff\xff\xff\x7fK\x01K\x00tb"),
    "dtype with fields": dtype_with(b"(K\x03U\x01|NU\x01a\x85}K\x08K\x01K\x00tb"),
    "odd byte order": dtype_with(b"(K\x03U\x01xNNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"),
    "8 GB of two bytes": dtype_with(PLAIN_STATE).replace(b"K\x02\x85", b"\x8a\x05\x00\x00\x00\x00\x02\x85"),
    "a negative shape": dtype_with(PLAIN_STATE).replace(b"K\x02\x85", b"J\xfe\xff\xff\xff\x85"),
    "state of a function": b"\x80\x02c_codecs\nencode\n}U\x0c__defaults__)sb.",
    "keys that are numbers": b"\x80\x02}(K\x01NK\x02Nu.",
    "a list in itself": b"\x80\x02]q\x00h\x00a.",
    "lists of lists twice": b"\x80\x02]q\x00K\x01a" + b"]q\x01(h\x00h\x00e" + b"q\x00]q\x01(h\x00h\x00e" * 30 + b".",
    "a class": b"\x80\x02cbuiltins\nobject\n)\x81.",
    "a persistent id": b"\x80\x02K\x01Q.",
    "a function as data": b"\x80\x02c_codecs\nencode\n.",
    "one text encoded often": b"\x80\x02X" + (50_000).to_bytes(4, "little") + b"a" * 50_000 + b"q\x00U\x06latin1q\x01"
    + b"](" + b"c_codecs\nencode\nh\x00X\x06\x00\x00\x00latin1\x86R" * 3000 + b"e.",
}  # fmt: skip


def peak_of(content):
    """The most memory that is allocated while ``content`` is read, in bytes, and the line that refuses it, or None."""
    stream = io.BytesIO(content)
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    refused = None
    try:
        load_plain(stream, "here")
    except HoldfastError as error:
        refused = str(error)
    return tracemalloc.get_traced_memory()[1] - before, refused


@pytest.fixture
def traced():
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_known_attacks_are_refused(content, traced):
    peak, refused = peak_of(content)
    assert refused is not None
    assert refused.startswith("here: ")
    assert "\n" not in refused
    assert peak < 10 * len(content) + 100_000


def test_a_large_memo_index_takes_no_memory(traced):
    """Python's unpickler in C allocates and clears 64 GB for it."""
    peak, refused = peak_of(b"\x80\x02}r\xff\xff\xff\xff.")
    assert (refused, peak < 100_000) == (None, True)


def test_the_plain_state_of_a_dtype_is_accepted():
    """So that the attacks above are refused for their difference from it."""
    assert load_plain(io.BytesIO(dtype_with(PLAIN_STATE)), "here")[b"data"].tobytes() == b"ab"


def seeds():
    rows = np.random.default_rng(0).integers(0, 256, (2, 3072), dtype=np.uint8)
    batch = {"data": rows, "labels": [0, 1], "mean": rows.mean(1), "batch_label": "one", "filenames": [b"a", "b"]}
    found = [pickle.dumps(batch, protocol) for protocol in (0, 2, 3, 4)]
    python_2 = dtype_with(PLAIN_STATE).replace(b"U\x02abtbs.", LARGE + b"tbs.").replace(b"K\x02\x85", b"M\x88\x13\x85")
    return [*found, python_2]


def mutated(content, chance):
    """``content`` with a few bytes replaced, inserted, removed or repeated; most of them where the instructions are."""
    body = bytearray(content)
    for _ in range(chance.choice((1, 1, 2, 4, 16))):
        place = chance.randrange(min(len(body), chance.choice((120, 300, len(body)))))
        kind = chance.randrange(5)
        if kind == 0:
            body[place] = chance.randrange(256)
        elif kind == 1:
            body[place] = chance.choice(b"(.0123]}tbRcq\x81\x85\x86\x8a\x93\x94\x95heusNJKMBTUXr")
        elif kind == 2:
            body[place:place] = bytes(chance.choices(b"(tbRh\x00q\x01]}2e\xffNK", k=chance.randrange(1, 6)))
        elif kind == 3:
            del body[place : place + chance.randrange(1, 9)]
        else:
            start = chance.randrange(min(len(body), 300))
            body[place:place] = body[start : start + chance.randrange(1, 60)]
        body = body or bytearray(b".")
    return bytes(body)


def test_mutated_pickles_neither_crash_nor_take_memory(traced):
    chance, found = random.Random(29), seeds()
    for content in found:
        assert peak_of(content)[1] is None
    refused = 0
    for number in range(MUTATIONS):
        content = mutated(found[number % len(found)], chance)
        peak, reason = peak_of(content)
        assert peak < 10 * len(content) + 20_000, (peak, len(content), content[:400])
        assert reason is None or (reason.startswith("here: ") and "\n" not in reason)
        refused += reason is not None
    assert MUTATIONS / 5 < refused < MUTATIONS  # mutations matter, and some files stay readable


def test_readers_of_mutated_batches_say_one_line(tmp_path, sample, pickled):
    chance = random.Random(7)
    members = pickled(sample.batches("cifar10"), "cifar-10-batches-py")
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    for name, content in members.items():
        (tmp_path / name).write_bytes(content)
    refused = []
    for number in range(100):
        name = ("test_batch", "batches.meta")[number % 2]
        original = members[f"cifar-10-batches-py/{name}"]
        (folder / name).write_bytes(mutated(original, chance))
        try:
            load_split("cifar10", "test", tmp_path)
        except HoldfastError as error:
            refused.append(str(error))
        (folder / name).write_bytes(original)
    assert len(refused) > 25
    assert not any("\n" in line for line in refused)


@pytest.mark.parametrize("labels", [3, [[0, 1], [1, 0]], ["a", "b", "c", "d"], [10**30] * 4, None])
def test_labels_are_whole_numbers(labels, tmp_path, sample, pickled):
    batches = sample.batches("cifar10")
    batches["test_batch"][b"labels"] = labels
    (tmp_path / "cifar-10-batches-py").mkdir()
    for name, content in pickled(batches, "cifar-10-batches-py").items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(HoldfastError, match="test_batch: labels: must be a list of whole numbers"):
        load_split("cifar10", "test", tmp_path)
