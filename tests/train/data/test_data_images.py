import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.errors import HoldfastError
from holdfast.train.data import canonical, first_per_class


def slow_canonical(images, labels):
    """The definition, one image at a time: order by class, then by the digest of the pixels."""
    digests = [hashlib.blake2b(image.tobytes(), digest_size=16).digest() for image in images]
    order = sorted(range(len(labels)), key=lambda i: (labels[i], digests[i]))
    whole = hashlib.blake2b(repr(images.shape[1:]).encode(), digest_size=16)
    for i in order:
        whole.update(int(labels[i]).to_bytes(8, "little") + digests[i])
    return images[order], labels[order], whole.hexdigest()


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 40), st.sampled_from([1, 3]), st.sampled_from([np.uint8, np.int64]))
def test_canonical_is_its_slow_definition(seed, count, channels, label_type):
    random = np.random.default_rng(seed)
    images = random.integers(0, 2, (count, 2, 1, channels), dtype=np.uint8)  # so few values that images repeat
    labels = random.integers(0, 4, count).astype(label_type)
    got = canonical(images, labels, "abcd", source="test")
    want_images, want_labels, want_fingerprint = slow_canonical(images, labels)
    np.testing.assert_array_equal(got.images, want_images)
    np.testing.assert_array_equal(got.labels, want_labels)
    assert got.fingerprint == want_fingerprint
    assert got.labels.dtype == np.int64


def test_views_are_hashed_by_what_they_show():
    images = np.arange(2 * 3 * 4 * 4, dtype=np.uint8).reshape(2, 3, 4, 4)
    turned = images.transpose(0, 2, 3, 1)
    plain = canonical(turned.copy(), np.array([0, 0]), ["a"], source="test")
    assert canonical(turned, np.array([0, 0]), ["a"], source="test").fingerprint == plain.fingerprint


GOOD = np.zeros((2, 4, 4, 3), np.uint8)


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (GOOD.astype(np.float32), [0, 1], "must be uint8.*float32"),
        (GOOD[..., :2], [0, 1], "must be uint8"),
        (GOOD, [0, 1, 1], "2 images but labels"),
        (GOOD, [0, 2], r"0\.\.1 \(2 classes\), found 0\.\.2"),
        (GOOD, [-1, 0], r"found -1\.\.0"),
        (GOOD, [0.0, 1.0], "must be integers"),
        (GOOD[:0], [], "no images"),
    ],
)
def test_bad_arrays_are_refused(images, labels, message):
    with pytest.raises(HoldfastError, match=f"here: .*{message}"):
        canonical(images, np.array(labels), ["a", "b"], source="here")


def test_first_per_class_refuses_nothing_at_all():
    with pytest.raises(HoldfastError, match="at least 1"):
        first_per_class(canonical(GOOD, np.array([0, 1]), ["a", "b"], source="x"), 0)
