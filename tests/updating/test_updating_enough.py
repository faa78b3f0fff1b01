"""Too little to learn from is said, not trained on in silence."""

import shutil

import pytest
from letters_on_disk import write_folder

from holdfast.errors import HoldfastError
from holdfast.updating import start, update
from holdfast.updating.enough import lone_images
from holdfast.updating.pictures import Picture
from holdfast.wording import counted


def test_one_class_is_refused(letters, recipe, tmp_path):
    data, out = write_folder(letters, [4], tmp_path / "data"), tmp_path / "1"
    with pytest.raises(HoldfastError, match=r"one class only, '04', .* give two or more") as caught:
        start(data, out, recipe=str(recipe), device="cpu")
    assert "\n" not in str(caught.value)
    assert not out.exists()


def test_a_class_with_one_image_is_told(first, letters, recipe, tmp_path):
    data, events = write_folder(letters, [3, 4], tmp_path / "data"), []
    for file in sorted((data / "04").iterdir())[1:]:
        file.unlink()
    start(data, tmp_path / "1", recipe=str(recipe), device="cpu", watch=events.append)
    expected = "1 of 2 classes has a single example ('04')"
    assert [one["text"].split(":")[0] for one in events if one["event"] == "warning"] == [expected]
    events.clear()
    shutil.rmtree(data / "03")
    update(first, data, tmp_path / "2", device="cpu", watch=events.append)
    assert any(one.get("text", "").startswith("1 of 1 class has a single example ('04')") for one in events)


def test_lone_images_by_content_and_by_name():
    pictures = [Picture(name, None, sha) for name, sha in [("a", "1"), ("a", "1"), ("b", "2"), ("b", "3"), ("c", "4")]]
    assert lone_images(pictures, ["c"]).startswith("1 of 3 classes has a single example ('a')")
    assert lone_images(pictures[2:4], []) is None
    many = [Picture(f"{i}", None, f"{i}") for i in range(7)]
    assert "7 of 7 classes have a single example each ('0', '1', '2', '3', '4' and 2 more)" in lone_images(many, [])


@pytest.mark.parametrize(("number", "text"), [(0, "0 classes"), (1, "1 class"), (1200, "1,200 classes")])
def test_counted(number, text):
    assert counted(number, "class") == text
    assert counted(number, "run") == text.replace("classes", "runs").replace("class", "run")
    assert counted(number, "query") == text.replace("classes", "queries").replace("class", "query")
