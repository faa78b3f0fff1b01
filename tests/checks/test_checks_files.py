"""Every kind of file gives the same check; what cannot be read is named."""

import numpy as np
import pytest

from holdfast import check
from holdfast.core.errors import HoldfastError
from holdfast.vectors.feature_files import read_features
from holdfast.vectors.feature_set import MappedRows


def write(folder, kind, name, features, labels, ids=None):
    path = folder / f"{name}.{kind.split('-')[0]}"
    columns = {"labels": labels} | ({} if ids is None else {"ids": ids})
    if kind.startswith("npz"):
        (np.savez_compressed if kind == "npz-compressed" else np.savez)(path, features=features, **columns)
    elif kind.startswith("npy"):
        np.save(path, np.asfortranarray(features) if kind == "npy-fortran" else features)
        for column, values in columns.items():
            np.save(folder / f"{name}.{column}.npy", values)
    else:
        arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        lists = arrow.array(list(features))
        if kind == "parquet-fixed":
            lists = arrow.FixedSizeListArray.from_arrays(arrow.array(features.ravel()), features.shape[1])
        table = arrow.table({"features": lists, **{key: arrow.array(value) for key, value in columns.items()}})
        parquet.write_table(table, path, row_group_size=150)
    return path


@pytest.mark.parametrize(
    "kind", ["npz", "npz-compressed", "npy", "npy-fortran", "parquet", "parquet-fixed", "npz-half", "npz-text"]
)
def test_every_kind_gives_the_same(kind, sets, tmp_path):
    expected = check(**sets)
    files = {}
    for name, (features, labels) in sets.items():
        if kind == "npz-half":
            features = features.astype(np.float64)
        if kind == "npz-text":
            labels = np.array([f"class {label:02d}" for label in labels])
        files[name] = write(tmp_path, kind, name, features, labels, np.arange(len(labels)).astype(str))
    found = check(**files)
    for field in ("verdict", "self_test", "cross_test", "new_self_test", "gain", "notes"):
        assert getattr(found, field) == getattr(expected, field)
    assert found.sources["gallery"] == str(files["gallery"])


@pytest.mark.parametrize("kind", ["npz", "npy", "parquet"])
def test_large_files_stay_on_disk(kind, sets, tmp_path):
    rows = read_features(write(tmp_path, kind, "g", *sets["gallery"]), "gallery").rows
    assert isinstance(rows, MappedRows)
    assert np.array_equal(rows.block(3, 9), sets["gallery"][0][3:9])
    assert np.array_equal(rows.take(np.array([5, 2, 5])), sets["gallery"][0][[5, 2, 5]])


def test_a_folder_of_the_feature_store(tiny_run):
    old, new = tiny_run / "features" / "01", tiny_run / "features" / "03"
    found = check(old, old, new, new)
    import json

    C = json.loads((tiny_run / "metrics.json").read_text())["protocols"]["instance"]["matrix"]
    assert (found.self_test.value, found.cross_test.value, found.new_self_test.value) == (C[0][0], C[2][0], C[2][2])


def test_relevance_files(sets, tmp_path):
    bare = {name: (features, None) for name, (features, _) in sets.items()}
    labels, gallery_labels = sets["queries_old"][1], sets["gallery"][1]
    pairs = [(q, int(g)) for q in range(600) for g in np.flatnonzero(gallery_labels == labels[q])]
    wrong = [(q, g) for q in range(600) for g in np.flatnonzero(gallery_labels != labels[q])[:2]]
    lines = [f"{q},{g},1" for q, g in pairs] + [f"{q},{g},0" for q, g in wrong]
    (tmp_path / "r.csv").write_text("query,gallery,grade\n" + "\n".join(lines))
    (tmp_path / "r.tsv").write_text("\n".join(f"{q}\t{g}" for q, g in pairs))
    expected = check(**sets, score="nDCG@10").gain.value
    assert check(**bare, relevance=tmp_path / "r.csv").gain.value == expected
    assert check(**bare, relevance=tmp_path / "r.tsv").gain.value == expected
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {"query": [q for q, _ in pairs], "gallery": [g for _, g in pairs], "grade": [1.0] * len(pairs)}
    parquet.write_table(arrow.table(columns), tmp_path / "r.parquet")
    assert check(**bare, relevance=tmp_path / "r.parquet").gain.value == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a\n", "line 1 must be"),
        ("a,b,x\n", "'x' is not a number"),
        ("a,b,nan\n", "'nan' is not a number"),
        ("a,b,0\n", "no relevant pair"),
        ("", "no relevant"),
    ],
)
def test_bad_relevance(text, reason, sets, tmp_path):
    (tmp_path / "r.csv").write_text(text)
    with pytest.raises(HoldfastError, match=reason):
        check(**sets, relevance=tmp_path / "r.csv")
