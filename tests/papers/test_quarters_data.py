"""Which items of the quarterly study are trained on when, and which are searched."""

import numpy as np
import pytest
from PIL import Image

from papers.quarters import photograph_features
from papers.quarters.study_data import (
    AT_ARRIVAL,
    BUFFER_PER_CLASS,
    KNOWN,
    UNSEEN,
    VERSIONS,
    StudyData,
    photographs,
    pictures,
    read_vectors,
    scenario,
    texts,
)
from papers.quarters.text_vectors import descriptions

SIZES = (3, 2, 2, 2, 2)


@pytest.fixture(scope="module")
def data():
    """Eleven trained classes of 40 items, of which 10 are held out, and four unseen classes of 24."""
    random = np.random.default_rng(0)
    labels = np.array(
        [f"{name:02d}" for name in range(11) for _ in range(40)] + [f"u{n}" for n in range(96) for n in [n % 4]]
    )
    items = random.normal(size=(len(labels), 8)).astype(np.float32)
    trained = np.arange(440)
    held = trained[trained % 40 >= 30]
    return StudyData(
        "made up", items, labels, training=np.setdiff1d(trained, held), known=held, unseen=np.arange(440, 536),
        validation=np.empty(0, dtype=int), sizes=SIZES,
    )  # fmt: skip


def test_every_item_arrives_once_and_never_before_its_class(data):
    images, tasks = scenario(data, seed=1)
    arrived = np.concatenate([task.new_indices for task in tasks.tasks])
    assert sorted(arrived) == list(range(len(images)))
    for version, task in enumerate(tasks.tasks):
        assert task.num_new == SIZES[version]
        assert images.labels[task.new_indices].max() < task.num_seen
        of_new = np.isin(images.labels[task.new_indices], task.new_classes)
        at_arrival = 30 if version == VERSIONS - 1 else round(AT_ARRIVAL * 30)
        assert of_new.sum() == at_arrival * SIZES[version]
        assert version == 0 or not of_new.all()  # updates also bring new items of known classes


def test_the_buffer_holds_earlier_items_only(data):
    images, tasks = scenario(data, seed=1)
    before = np.empty(0, dtype=int)
    for task in tasks.tasks:
        assert np.isin(task.buffer_indices, before).all()
        counts = np.bincount(images.labels[task.buffer_indices], minlength=task.num_seen)
        had = np.bincount(images.labels[before], minlength=task.num_seen)
        assert (counts == np.minimum(had, BUFFER_PER_CLASS)).all()
        before = np.concatenate([before, task.new_indices])


def test_a_seed_draws_classes_and_splits(data):
    first, second = (scenario(data, seed=seed)[0] for seed in (0, 1))
    assert first.class_names != second.class_names
    assert sorted(first.class_names) == sorted(second.class_names)
    assert (data.split(UNSEEN, 0).queries != data.split(UNSEEN, 1).queries).any()
    assert (data.split(UNSEEN, 0).queries == data.split(UNSEEN, 0).queries).all()


@pytest.mark.parametrize(("table", "each"), [(UNSEEN, (8, 6, 10)), (KNOWN, (3, 3, 4))])
def test_queries_pairs_and_gallery_share_no_item(data, table, each):
    split = data.split(table, 0)
    parts = (split.queries, split.pairs, split.gallery)
    assert sorted(np.concatenate(parts)) == sorted(data.unseen if table == UNSEEN else data.known)
    for part, count in zip(parts, each):
        assert set(np.unique(data.labels[part], return_counts=True)[1]) == {count}
    assert len(split.query_codes) == len(split.queries)
    names = np.unique(data.labels[split.gallery])
    assert (names[split.gallery_codes] == data.labels[split.gallery]).all()
    assert (names[split.query_codes] == data.labels[split.queries]).all()


def test_photographs_of_validation_classes_are_in_no_table(tmp_path):
    for split, each in (("train", 3), ("test", 2)):
        labels = np.repeat([f"{number:03d}.Bird" for number in range(1, 201)], each)
        np.savez(tmp_path / f"lite0-{split}.npz", features=np.ones((len(labels), 4), np.float32), labels=labels,
                 ids=labels, seconds=2.0)  # fmt: skip
    found = photographs(tmp_path)
    numbers = np.array([int(label[:3]) for label in found.labels])
    assert set(numbers[found.training]) == set(numbers[found.known]) == set(range(1, 81))
    assert set(numbers[found.validation]) == set(range(81, 101))
    assert set(numbers[found.unseen]) == set(range(101, 201))
    assert len(found.training) == 240
    assert len(found.known) == 160
    assert len(found.unseen) == 500
    assert found.seconds_per_item == pytest.approx(4 / 1000)


def test_the_middle_of_a_photograph_is_searched():
    random = np.random.default_rng(0)
    items = random.integers(0, 256, size=(3, 256, 256, 3), dtype=np.uint8)
    none = np.empty(0, dtype=int)
    data = StudyData("made up", items, np.array(["a", "b", "c"]), none, none, none, none, sizes=())
    assert (data.searched(np.array([2, 0])) == items[[2, 0], 16:240, 16:240]).all()


def test_texts_are_divided_by_section(tmp_path):
    labels = np.array([f"s{number:02d}" for number in range(20) for _ in range(110)] + ["rare"] * 5)
    np.savez(tmp_path / "texts.npz", features=np.ones((len(labels), 4), np.float32), labels=labels, ids=labels)
    found = texts(tmp_path)
    trained, known, unseen = (set(found.labels[rows]) for rows in (found.training, found.known, found.unseen))
    assert trained == known == {f"s{number:02d}" for number in range(0, 20, 2)}
    assert unseen == {f"s{number:02d}" for number in range(1, 20, 2)}
    assert not set(found.training) & set(found.known)
    assert found.sizes == (6, 1, 1, 1, 1)


def test_descriptions_are_read_from_debians_format():
    text = (
        "Package: one\nSection: contrib/net\nDescription: a tool that\n sends packets to places\n\n"
        "Package: two\nSection: text\nDescription: short\n\n"
        "Package: one\nSection: text\nDescription-en: a second entry of the same package\n"
    )
    assert descriptions(text) == [("one", "net", "a tool that sends packets to places")]


def test_photographs_become_features(tmp_path, monkeypatch):
    for split in photograph_features.SPLITS:
        for name in ("a", "b"):
            folder = tmp_path / "photos" / split / f"00{len(name)}.{name}"
            folder.mkdir(parents=True)
            Image.new("RGB", (30, 20), (255, 0, 0) if name == "a" else (0, 0, 255)).save(folder / "1.jpg", quality=95)
    asked = []

    def session(network, threads):
        asked.append(network)
        return lambda pixels: pixels.mean((2, 3))

    monkeypatch.setattr(photograph_features, "network_session", session)
    out = tmp_path / "features"
    photograph_features.write_features(tmp_path / "photos", out, "lite0", say=lambda text: None)
    found = read_vectors(out / "lite0-test.npz")
    assert list(found["ids"]) == ["test/001.a/1.jpg", "test/001.b/1.jpg"]
    assert list(found["labels"]) == ["001.a", "001.b"]
    red = (np.array([254 / 255, 0, 0]) - photograph_features.MEAN) / photograph_features.STD
    assert found["features"][0] == pytest.approx(red, abs=0.05)
    photograph_features.write_features(tmp_path / "photos", out, "lite0", say=lambda text: None)
    assert asked == ["lite0"]  # files that exist are kept


def test_photographs_become_pixels(tmp_path):
    for split in photograph_features.SPLITS:
        for number in range(1, 201):
            folder = tmp_path / "photos" / split / f"{number:03d}.bird"
            folder.mkdir(parents=True)
            Image.new("RGB", (30, 20), (number, 0, 0)).save(folder / "1.jpg", quality=95)
    photograph_features.write_pictures(tmp_path / "photos", tmp_path, say=lambda text: None)
    found = pictures(tmp_path)
    assert found.items.shape == (400, 256, 256, 3)
    assert abs(int(found.items[99, 100, 100, 0]) - 100) < 4
    assert len(found.training) == len(found.known) == 80
    assert len(found.unseen) == 200
    photograph_features.write_pictures(tmp_path / "photos", tmp_path, say=pytest.fail)  # files there are kept
