import pytest

from holdfast.core.errors import HoldfastError
from holdfast.embedders.image_table import read_image_table
from holdfast.train.data import load_split


def load(root, split="train"):
    return load_split("csv", split, root, path="lists/list.csv")


@pytest.fixture
def rows(sample, tmp_path):
    """Rows for the twelve images, with paths relative to the CSV's own folder."""
    (tmp_path / "lists").mkdir()
    files = sample.write_images(tmp_path / "lists" / "pictures")
    return [[str(file.relative_to(tmp_path / "lists")), name] for file, name in files]


def test_splits_agree_on_the_classes(rows, tmp_path, write_rows):
    split = ["train" if name == "ant" else "test" for _, name in rows]
    table = [["path", "label", "split"], *([*row, part] for row, part in zip(rows, split))]
    write_rows(tmp_path / "lists" / "list.csv", table)
    train, test = load(tmp_path), load(tmp_path, "test")
    assert train.class_names == test.class_names == ("ant", "bee", "cat")
    assert set(train.labels) == {0}
    assert set(test.labels) == {1, 2}
    with pytest.raises(HoldfastError, match="'query'; known: test, train"):
        load(tmp_path, "query")


def test_byte_order_mark_blank_lines_and_any_label(rows, tmp_path):
    lines = ["\ufeffPath,Label", "", *(f'{file},"{name}, nº 1"' for file, name in rows), ""]
    (tmp_path / "lists" / "list.csv").write_text("\r\n".join(lines), encoding="utf-8")
    assert load(tmp_path).class_names == ("ant, nº 1", "bee, nº 1", "cat, nº 1")


def test_the_order_of_the_columns_and_an_id_do_not_matter(rows, tmp_path, write_rows):
    """The file that ``embed`` reads is one to train on."""
    write_rows(tmp_path / "lists" / "list.csv", [["path", "label"], *rows])
    plain = load(tmp_path)
    table = [["id", "label", "path"], *([number, name, file] for number, (file, name) in enumerate(rows))]
    write_rows(tmp_path / "lists" / "list.csv", table)
    assert load(tmp_path).fingerprint == plain.fingerprint
    assert read_image_table(tmp_path / "lists" / "list.csv").ids == tuple(map(str, range(12)))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (["pictures/none.png", "ant"], "line 14: .*none.png: no such image"),
        (["broken.png", "ant"], "line 14: .*broken.png: not readable"),
        (["broken.png"], "line 14: 2 columns expected, found 1"),
        (["broken.png", " "], "line 14: an empty field"),
    ],
)
def test_errors_name_the_line(row, message, rows, tmp_path, write_rows):
    (tmp_path / "lists" / "broken.png").write_bytes(b"no image")
    write_rows(tmp_path / "lists" / "list.csv", [["path", "label"], *rows, row])
    with pytest.raises(HoldfastError, match=rf"list\.csv, {message}"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "line 1: the header must be"),
        (b"file,class\na.png,b\n", "line 1: the header must be path,label, perhaps with id or split, each once"),
        (b"path,label,path\na.png,b,a.png\n", "line 1: the header must be"),
        (b"path,label\n", "no rows"),
        (b"path,label\n\xff\xfe,a\n", "not readable as UTF-8"),
        (b'path,label\na.png,"b\n', "line 2: "),
    ],
)
def test_malformed_tables(content, message, tmp_path):
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists" / "list.csv").write_bytes(content)
    with pytest.raises(HoldfastError, match=rf"list\.csv.*{message}"):
        load(tmp_path)


def test_a_missing_table_is_named(tmp_path):
    with pytest.raises(HoldfastError, match=r"list\.csv: no such file"):
        load(tmp_path)
