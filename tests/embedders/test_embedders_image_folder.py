"""Which files are images, which are passed over and which are problems; splits; the list of problems."""

import csv
import io
import os

import pytest
from PIL import Image, features

from holdfast.core.errors import HoldfastError
from holdfast.core.problems import Problem, problem_file, problems_error, write_problems
from holdfast.core.wording import printable
from holdfast.embedders import pixels
from holdfast.embedders.image_folder import find_files
from holdfast.train.data import load_split
from holdfast.train.data.decode import unreadable
from holdfast.train.data.readers.image_files import find_in_csv, find_in_folders


def picture(path, form=None, size=(8, 8)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.linear_gradient("L").convert("RGB").resize(size).save(path, form)
    return path


def names(paths, top):
    return [path.relative_to(top).as_posix() for path in paths]


def test_every_file_is_an_image_passed_over_or_a_problem(tmp_path):
    top = tmp_path / "a"
    picture(top / "1.PNG")
    picture(top / "deep" / "er" / "2.jpeg")
    picture(top / ".hidden" / "3.png")
    picture(top / ".4.png")
    picture(top / "line\nbreak.png")
    picture(top / "bad\nfolder" / "5.png")
    (top / os.fsdecode(b"\xff\xfe.jpg")).write_bytes(b"")
    (top / "notes.txt").write_text("")
    (top / "no suffix").write_text("")
    (top / "gone.jpg").symlink_to(tmp_path / "gone")
    (top / "gone").symlink_to(tmp_path / "gone")
    (top / "gone.txt").symlink_to(tmp_path / "gone")
    (top / "up").symlink_to(tmp_path)
    (top / "again").symlink_to(top / "deep")
    os.mkfifo(top / "pipe.png")
    picture(tmp_path / "beside" / "6.png")
    found = find_files(top)
    assert names(found.images, top) == ["1.PNG", "again/er/2.jpeg"]
    assert sorted(names(found.passed_over, top)) == ["deep", "gone.txt", "no suffix", "notes.txt", "up"]
    problems = {printable(one.path.relative_to(top)): one.reason for one in found.problems}
    assert set(problems) == {
        r"bad\nfolder", r"line\nbreak.png", r"\udcff\udcfe.jpg", "gone", "gone.jpg", "pipe.png"
    }  # fmt: skip
    assert problems["pipe.png"] == "not a regular file"
    assert "rename it" in problems[r"line\nbreak.png"]
    assert problems["gone"] == problems["gone.jpg"] == "a link that leads nowhere"
    assert (
        find_files(tmp_path / "nowhere").problems[0].reason
        == "a folder that cannot be listed (No such file or directory)"
    )


def test_images_that_cannot_be_decoded(tmp_path):
    whole = picture(tmp_path / "1.jpg", size=(200, 200))
    cut = tmp_path / "2.jpg"
    cut.write_bytes(whole.read_bytes()[:-500])
    (tmp_path / "3.png").write_bytes(b"")
    (tmp_path / "4.gif").write_bytes(b"text")
    Image.new("F", (4, 4)).save(tmp_path / "5.tiff")
    found = {one.path.name: one.reason for one in unreadable(sorted(tmp_path.iterdir()), name="test")}
    assert set(found) == {"2.jpg", "3.png", "4.gif", "5.tiff"}
    assert "truncated" in found["2.jpg"]
    assert "the file is empty" in found["3.png"]
    assert found["4.gif"] == "not readable as an image (unknown format, or damaged)"
    assert found["5.tiff"].startswith("floating-point pixels")


@pytest.mark.parametrize(
    ("folders", "split_folders", "classes"),
    [
        (["train/ant", "train/bee", "test/ant"], None, ["ant", "bee"]),
        (["train", "bus", "tram"], None, ["bus", "train", "tram"]),
        (["train/ant", "train/bee", "spare/ant"], True, ["ant", "bee"]),
        (["train", "test"], False, ["test", "train"]),
    ],
)
def test_splits_are_detected_only_if_all_folders_are_named_so(folders, split_folders, classes, tmp_path):
    for folder in folders:
        picture(tmp_path / folder / "1.png")
    found = find_in_folders(tmp_path, "train", split_folders)
    assert list(found.listing.class_names) == classes
    assert not found.problems
    images = load_split("folder", "train", path=str(tmp_path), size=8, split_folders=split_folders)
    assert list(images.class_names) == classes
    told = [note for note in found.notes if "--split-folders yes" in note]
    assert bool(told) == (folders == ["train", "bus", "tram"])


def test_a_split_that_is_asked_for_must_be_one(tmp_path):
    for folder in ("train/ant", "test/ant", "other/ant"):
        picture(tmp_path / folder / "1.png")
    with pytest.raises(
        HoldfastError, match=r"no folder 'test'; splits found: train, test, beside other; split_folders"
    ):
        find_in_folders(tmp_path, "test")
    assert find_in_folders(tmp_path, "test", True).listing.source == tmp_path / "test"
    with pytest.raises(HoldfastError, match="no folder 'val'; splits found: train, test"):
        find_in_folders(tmp_path, "val", True)


def test_a_lone_class_called_train_is_told_what_to_pass(tmp_path):
    picture(tmp_path / "train" / "1.png")
    with pytest.raises(
        HoldfastError, match=r"1 image, but in no folder; .*If train is a class, pass --split-folders no"
    ):
        find_in_folders(tmp_path)


def test_all_problems_of_classes_are_found_at_once(tmp_path):
    picture(tmp_path / "ant" / "1.png")
    picture(tmp_path / "loose.png")
    (tmp_path / "bee").mkdir()
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "notes.txt").write_text("")
    picture(tmp_path / "do\ng" / "1.png")
    (tmp_path / "elk.v2").symlink_to(tmp_path / "gone")
    (tmp_path / "loop").symlink_to(tmp_path)
    found = find_in_folders(tmp_path)
    assert found.listing.class_names == ("ant",)
    assert found.classes == ("ant", "bee", "cat", r"do\ng", "loop")
    assert {printable(one.path.name) for one in found.problems} == {"bee", "cat", r"do\ng", "elk.v2", "loop"}
    assert "1 image beside the class folders is in no class: passed over" in found.notes
    assert "1 file passed over as not images (.txt)" in found.notes
    with pytest.raises(
        HoldfastError, match=r"5 problems among .*bee: no images; .*cat: no images \(1 other file: .txt\)"
    ):
        load_split("folder", "train", path=str(tmp_path), size=8)


def test_all_bad_rows_of_a_table_are_named_with_their_lines(tmp_path):
    picture(tmp_path / "1.png")
    (tmp_path / "t.csv").write_text('path,label\n1.png,a\n2.png,a\n3.png,b\n1.png,"c\nd"\n')
    found = find_in_csv(tmp_path / "t.csv")
    assert len(found.listing) == 1
    assert found.classes == ("a", "b", r"c\nd")
    assert [one.origin.rsplit(" ", 1)[1] for one in found.problems] == ["3", "4", "6"]
    with pytest.raises(
        HoldfastError, match=r"3 problems among 4 files: .*t.csv, line 3: .*2.png: no such image file; .*line 4"
    ):
        load_split("csv", "train", path=str(tmp_path / "t.csv"), size=8)


def test_the_list_and_the_message(tmp_path):
    problems = [Problem(tmp_path / f"{n}\n.png", "why, so", f"t.csv, line {n}" if n else "") for n in range(12)]
    file = problem_file(tmp_path / "models" / "1")
    assert file == tmp_path / "models" / "1.unreadable.csv"
    write_problems(file, problems)
    rows = list(csv.reader(io.StringIO(file.read_text())))
    assert rows[0] == ["path", "reason"]
    assert rows[1] == [f"{tmp_path}/0\\n.png", "why, so"]
    assert rows[2][1] == "why, so (t.csv, line 1)"
    assert len(rows) == 13
    text = str(problems_error(tmp_path, problems, 2000, listed=file, advice="; do this"))
    assert text.startswith(
        f"{tmp_path}: 12 problems among 2,000 files (list: {file}): 0\\n.png: why, so; t.csv, line 1: "
    )
    assert text.endswith("; and 2 more; do this")
    assert "\n" not in text
    assert str(problems_error(tmp_path, problems[:1], 9)) == f"{tmp_path}/0\\n.png: why, so"
    write_problems(file, [])
    assert not file.exists()


def heic(colour=(200, 30, 40)):
    heif = pytest.importorskip("pillow_heif", reason="the extra heif is not installed")
    stream = io.BytesIO()
    heif.from_pillow(Image.new("RGB", (64, 48), colour)).save(stream)
    return stream.getvalue()


def test_heic_is_read_with_the_extra(tmp_path):
    for name in ("phone.HEIC", "wrong-suffix.jpg"):
        (tmp_path / name).write_bytes(heic())
    found = find_files(tmp_path)
    assert len(found.images) == 2
    assert unreadable(found.images, name="test") == []
    image = pixels.open_image(tmp_path / "phone.HEIC")
    assert image.size == (64, 48)
    assert all(abs(a - b) < 12 for a, b in zip(image.getpixel((20, 20)), (200, 30, 40)))
    (tmp_path / "cut.heic").write_bytes(heic()[:200])
    assert len(unreadable([tmp_path / "cut.heic"], name="test")) == 1


@pytest.mark.skipif(not features.check("avif"), reason="this Pillow has no AVIF")
def test_avif_is_read_by_pillow(tmp_path):
    file = picture(tmp_path / "1.avif", size=(64, 48))
    assert unreadable(find_files(tmp_path).images, name="test") == []
    assert pixels.open_image(file).size == (64, 48)


@pytest.mark.parametrize(
    ("brand", "words"), [(b"heic", r"HEIC needs the extra heif: pip install '.\[heif\]'"), (b"avif", "pillow>=11.3")]
)
def test_without_the_decoder_the_message_says_what_to_install(brand, words, tmp_path, monkeypatch):
    monkeypatch.setattr(pixels, "_formats", lambda: ("PNG", "JPEG"))
    file = tmp_path / "phone.heic"
    file.write_bytes(b"\0\0\0\x1cftyp" + brand + b"\0" * 40)
    assert find_files(tmp_path).images == [file]  # not passed over
    with pytest.raises(HoldfastError, match=words):
        pixels.open_image(file)
    with pytest.raises(HoldfastError, match=words):
        pixels.open_image(file.read_bytes())
