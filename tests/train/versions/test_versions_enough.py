"""Too little to learn from is said, not trained on in silence."""

import shutil
from pathlib import Path

import pytest
from letters_on_disk import write_folder

from holdfast.core.errors import HoldfastError
from holdfast.core.wording import counted
from holdfast.train.versions import start, update
from holdfast.train.versions.samples import (
    ImageFiles,
    SampleRef,
    equal_looking_classes,
    in_several_classes,
    nested_classes,
    single_sample_classes,
)


def test_one_class_is_refused(letters, recipe, tmp_path):
    data, out = write_folder(letters, [4], tmp_path / "data"), tmp_path / "1"
    with pytest.raises(HoldfastError, match=r"one class only, '04', .* give two or more") as caught:
        start(data, out, settings=recipe, device="cpu")
    assert "\n" not in str(caught.value)
    assert not out.exists()


def test_a_class_with_one_image_is_told(first, letters, recipe, tmp_path):
    data, events = write_folder(letters, [3, 4], tmp_path / "data"), []
    for file in sorted((data / "04").iterdir())[1:]:
        file.unlink()
    start(data, tmp_path / "1", settings=recipe, device="cpu", on_event=events.append)
    expected = "1 of 2 classes has a single example ('04')"
    assert [one.text.split(":")[0] for one in events if one.kind == "warning"] == [expected]
    events.clear()
    shutil.rmtree(data / "03")
    update(first, data, tmp_path / "2", device="cpu", on_event=events.append)
    assert any(getattr(one, "text", "").startswith("1 of 1 class has a single example ('04')") for one in events)


def test_a_folder_one_level_too_high_is_told(letters, recipe, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for season in ("spring", "summer"):
        write_folder(letters, [3, 4], tmp_path / "photos" / season)
    events = []
    start(Path("photos"), tmp_path / "1", settings=recipe, device="cpu", on_event=events.append)
    warning, same = [one.text for one in events if one.kind == "warning"]
    assert "in several classes" in same  # the same images in both seasons
    assert warning.startswith(
        "2 of 2 classes (spring, summer) have no images directly inside, only folders of images (03, 04)"
    )
    assert warning.endswith("one level too high: try photos/spring")
    assert "\n" not in warning
    events.clear()
    start(Path("photos/spring"), tmp_path / "2", settings=recipe, device="cpu", on_event=events.append)
    assert not [one for one in events if one.kind == "warning"]


def test_images_that_lie_deeper_are_no_mistake_by_themselves(tmp_path):
    def found(*paths, source=tmp_path):
        return nested_classes([SampleRef(Path(one).parts[-3], source / one, one) for one in paths], source)

    assert found("a/images/1.png", "b/images/2.png") is None
    text = found("a/x/1.png", "b/y/2.png")
    assert text.endswith(f"one level too high: try {tmp_path / 'a'}")
    top = tmp_path / "a"
    flat = [
        SampleRef("a", top / "1.png", "1"),
        SampleRef("a", top / "x" / "2.png", "2"),
        SampleRef("a", top / "y" / "3", "3"),
    ]
    assert nested_classes(flat, tmp_path) is None
    assert nested_classes(flat, tmp_path / "list.csv") is None


def test_single_sample_classes_by_content_and_by_name():
    pictures = [
        SampleRef(name, None, sha) for name, sha in [("a", "1"), ("a", "1"), ("b", "2"), ("b", "3"), ("c", "4")]
    ]
    assert single_sample_classes(pictures, ["c"]).startswith("1 of 3 classes has a single example ('a')")
    assert single_sample_classes(pictures[2:4], []) is None
    many = [SampleRef(f"{i}", None, f"{i}") for i in range(7)]
    assert "7 of 7 classes have a single example each ('0', '1', '2', '3', '4' and 2 more)" in single_sample_classes(
        many, []
    )


@pytest.mark.parametrize(("number", "text"), [(0, "0 classes"), (1, "1 class"), (1200, "1,200 classes")])
def test_counted(number, text):
    assert counted(number, "class") == text
    assert counted(number, "run") == text.replace("classes", "runs").replace("class", "run")
    assert counted(number, "query") == text.replace("classes", "queries").replace("class", "query")


def test_a_warning_names_classes_that_look_equal():
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    samples = [SampleRef(name, Path(name), name) for name in (composed, "tea")]
    assert equal_looking_classes(samples, ()) is None
    warning = "class names look equal and are encoded differently ('café'): they count as different classes"
    assert equal_looking_classes(samples, [decomposed]) == warning


def test_an_image_in_two_classes_gives_a_warning(first, letters, recipe, tmp_path):
    reader, data, events = ImageFiles(16, "grey"), write_folder(letters, [3, 4], tmp_path / "data"), []
    moved = data / "03" / sorted((data / "04").iterdir())[0].name
    shutil.copy(data / "04" / moved.name, moved)
    start(data, tmp_path / "1", settings=recipe, device="cpu", on_event=events.append)
    (warning,) = [one.text for one in events if one.kind == "warning"]
    assert warning.startswith("1 image is in several classes, here or in earlier versions, such as ")
    assert f"{moved} ('03', '04')" in warning
    # One that has been given another class since an earlier version, which still has it in the old one.
    one, other = SampleRef("a", Path("a.png"), "1"), SampleRef("b", Path("b.png"), "1")
    assert in_several_classes(reader, [one, one], [one]) is None
    assert in_several_classes(reader, [one], [other]).startswith("1 image is in several classes")
    assert in_several_classes(reader, [SampleRef("c", Path("c.png"), "2")], [one, other]) is None
