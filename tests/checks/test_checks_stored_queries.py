"""Every item is a query and an item of the gallery at once: a query never finds itself."""

import numpy as np
import pytest

from holdfast import check
from holdfast.core.errors import HoldfastError


@pytest.fixture(scope="module")
def items():
    """60 items of 6 classes, of one class a single item, by an old and a new model."""
    rng = np.random.default_rng(0)
    labels = np.concatenate([np.arange(59) % 5, [5]])
    centres = 0.8 * rng.standard_normal((6, 8))
    old, new = (centres[labels] + noise * rng.standard_normal((60, 8)) for noise in (1.0, 0.7))
    ids = np.array([f"item {i}" for i in range(60)])
    return old, new, labels, ids


def leave_one_out(items, score="hit@1", **options):
    old, new, labels, ids = items
    return check(
        (old, labels, ids), (old, labels, ids), (new, labels, ids), (new, labels, ids),
        score=score, **options,
    )  # fmt: skip


def plain_score(queries, gallery, labels, score):
    """Each query by itself on the gallery without it."""
    found = []
    for i in range(59):  # the last item is the only one of its class
        others = np.delete(np.arange(60), i)
        cosines = gallery[others] @ queries[i] / np.linalg.norm(gallery[others], axis=1)
        right = labels[others][np.argsort(-cosines)] == labels[i]
        if score == "hit@1":
            found.append(float(right[0]))
        else:
            found.append(float((right.cumsum() / np.arange(1, 60))[right].mean()))
    return np.mean(found)


@pytest.mark.parametrize("score", ["hit@1", "mAP"])
def test_the_scores_are_those_of_galleries_without_the_query(items, score):
    old, new, labels, _ = items
    found = leave_one_out(items, score)
    assert found.self_test.value == pytest.approx(plain_score(old, old, labels, score))
    assert found.cross_test.value == pytest.approx(plain_score(new, old, labels, score))
    assert found.new_self_test.value == pytest.approx(plain_score(new, new, labels, score))
    assert (found.distinct, found.loss.units) == (59, 5)  # five classes decide
    assert "1 of 60 queries is the only one of the class; left out" in found.notes


def test_one_file_as_gallery_and_queries_has_each_note_once(items, tmp_path):
    old, new, labels, ids = items
    for name, features in (("old", old), ("new", new)):
        np.savez(tmp_path / f"{name}.npz", features=features, labels=labels, ids=ids)
    files = [tmp_path / f"{name}.npz" for name in ("old", "old", "new", "new")]
    notes = check(*files).notes
    assert len(notes) == len(set(notes))
    assert any(f"{files[0]}: not of length 1" in note for note in notes)


def test_only_the_same_vector_is_the_query_itself(items):
    old, new, labels, ids = items
    others = check(
        (old, labels, ids), (1.3 * old + 0.5, labels, ids), (new, labels, ids)
    )  # other views, of the same id
    assert others.stored_queries == 0
    assert leave_one_out(items).stored_queries == 60
    by_pairs = check((old, None, ids), (old, None, ids), (new, None, ids), relevance=[("item 3", "item 3")])
    assert by_pairs.stored_queries == 0
    assert any(note.startswith("60 queries are in the gallery themselves: item 0, ") for note in by_pairs.notes)
    with pytest.raises(HoldfastError, match="has no ids; queries that are items"):
        check((old, labels, ids), (old, labels, ids), (new, labels, ids), (new, labels))
