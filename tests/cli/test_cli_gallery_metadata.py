"""``holdfast gallery add --metadata``: a CSV file that says more of each image."""

import pytest
from PIL import Image

from holdfast.core.errors import HoldfastError
from holdfast.gallery import Gallery
from holdfast.gallery.item_files import read_metadata

pytest.importorskip("qdrant_edge")


@pytest.fixture
def shown(tmp_path):
    for number, name in enumerate(("cup/1.png", "cup/2.png", "mug/1.png")):
        (tmp_path / "shown" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.linear_gradient("L").rotate(30 * number).resize((16, 16)).save(tmp_path / "shown" / name)
    return tmp_path / "shown"


@pytest.fixture
def gallery(holdfast, tiny_run, tmp_path):
    holdfast("gallery", "create", tmp_path / "g", "--model", tiny_run / "models" / "01")
    return tmp_path / "g"


def table(tmp_path, text, encoding="utf-8"):
    (tmp_path / "about.csv").write_bytes(text.encode(encoding))
    return tmp_path / "about.csv"


def test_rows_go_to_their_images(gallery, shown, holdfast, holdfast_json, tmp_path):
    about = table(tmp_path, "\ufeffpath,price,shop\ncup/1.png,3,north\nmug/1.png,12,\ngone.png,7,south\n")
    words = ("gallery", "add", gallery, shown, "--metadata", about, "--labels-from-folders", "--meta", "shop=none")
    found = holdfast_json(*words)
    assert (found["added"], found["rows_without_image"], found["images_without_row"]) == (3, 1, 1)
    with Gallery.open(gallery) as opened:
        kept = {name: one["metadata"] for name, one in opened.get(["cup/1.png", "cup/2.png", "mug/1.png"]).items()}
    assert kept == {
        "cup/1.png": {"price": 3, "shop": "north"},
        "cup/2.png": {"shop": "none"},
        "mug/1.png": {"price": 12, "shop": "none"},
    }
    hits = holdfast_json("gallery", "search", gallery, shown / "cup/1.png", "--where", 'price={"gt": 5}')
    assert [hit["id"] for hit in hits] == ["mug/1.png"]
    assert "--metadata: rows that name no image: 1; images without a row: 1" in holdfast(*words)


def test_a_column_label_is_the_label(gallery, shown, holdfast, tmp_path):
    about = table(tmp_path, "id,label\ncup/1.png,7\n")
    holdfast("gallery", "add", gallery, shown, "--metadata", about)
    with Gallery.open(gallery) as opened:
        assert opened.get(["cup/1.png"])["cup/1.png"]["label"] == "7"
    with pytest.raises(HoldfastError, match=r"has a column label, and an option names the label too"):
        holdfast("gallery", "add", gallery, shown, "--metadata", about, "--label", "cup")


def test_kinds_of_columns(tmp_path):
    cells = {
        "whole": ("1", "-20", "", [1, -20, None]),
        "broken": ("1", "2.5", "1e3", [1, 2.5, 1000.0]),
        "mixed": ("1", "two", "3", ["1", "two", "3"]),
        "zip": ("01234", "56789", "10000", ["01234", "56789", "10000"]),
        "code": ("9007199254740993", "1", "2", ["9007199254740993", "1", "2"]),
        "fresh": ("True", "false", "", [True, False, None]),
        "odd": ("nan", "1", "2", ["nan", "1", "2"]),
        "said": ('"a, ""b"""', "c", "d", ['a, "b"', "c", "d"]),
    }
    lines = [",".join(["id", *cells]), *(",".join([str(n), *(row[n] for row in cells.values())]) for n in range(3))]
    rows = read_metadata(table(tmp_path, "\r\n".join(lines))).rows
    for name, (*_, wanted) in cells.items():
        found = [rows[str(n)].get(name) for n in range(3)]
        assert found == wanted
        assert [type(value) for value in found] == [type(value) for value in wanted]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("name,price\na,1\n", r"no column id or path to say which item a row belongs to; it has name, price"),
        ("id;price\na;1\n", r"columns are separated by commas"),
        ("id,price\na,1\nb,2\na,3\n", r"lines 2 and 4 both are id 'a'"),
        ("id,price\na\n", r"line 2 has 1 cells, the header 2"),
        ("id,price\n,1\n", r"line 2 has no id"),
        ("id,a,a\nx,1,2\n", r"two columns are called 'a'"),
        ("id,shop name\nx,1\n", r"metadata field 'shop name'"),
        ('id,shop\nx,"a\nb"\n', r"field 'shop': holds control characters"),
        ("id,price\n", r"holds no rows"),
        ("", r"empty; wanted a header"),
        ("id,price\nother/1.png,1\n", r"none of its 1 rows names one of the images; rows are called other/1.png"),
        ("id,shop\nx,caf\u00e9\n", r"not UTF-8 \(byte 13\)"),
    ],
)
def test_a_bad_file_is_refused_before_anything_is_embedded(
    gallery, shown, holdfast, monkeypatch, tmp_path, text, reason
):
    monkeypatch.setattr(Gallery, "add", lambda *given, **options: pytest.fail("something was embedded"))
    about = table(tmp_path, text, "latin-1" if "\u00e9" in text else "utf-8")
    with pytest.raises(HoldfastError, match=rf"about\.csv: .*{reason}") as refused:
        holdfast("gallery", "add", gallery, shown, "--metadata", about)
    assert "\n" not in str(refused.value)
