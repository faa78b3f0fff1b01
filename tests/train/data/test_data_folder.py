import numpy as np
import pytest
from PIL import Image

from holdfast.core.errors import HoldfastError
from holdfast.train.data import load_split


def load(root, split="train", **options):
    return load_split("folder", split, root, path="pictures", **options)


def test_flat_folder_is_the_training_split(sample, tmp_path):
    sample.write_images(tmp_path / "pictures")
    images = load(tmp_path)
    assert images.class_names == ("ant", "bee", "cat")
    with pytest.raises(HoldfastError, match="no folder 'test'; splits found: none"):
        load(tmp_path, "test")


def test_other_splits_are_not_taken_for_classes(sample, tmp_path):
    sample.write_images(tmp_path / "pictures" / "query")
    with pytest.raises(HoldfastError, match="no folder 'train'; splits found: query"):
        load(tmp_path)
    assert len(load(tmp_path, "query")) == 12


def test_hidden_files_links_nesting_and_other_files(sample, tmp_path):
    files = sample.write_images(tmp_path / "pictures")
    before = load(tmp_path)
    first = files[0][0]
    (first.parent / ".hidden.png").write_bytes(b"no image")
    (first.parent / "notes.txt").write_text("no image")
    (tmp_path / "pictures" / ".cache").mkdir()
    deep = first.parent / "more" / "deep"
    deep.mkdir(parents=True)
    first.rename(deep / "moved.PNG")
    (deep / "loop").symlink_to(first.parent, target_is_directory=True)
    outside = tmp_path / "outside.png"
    second = files[1][0]
    second.rename(outside)
    second.symlink_to(outside)
    assert load(tmp_path).fingerprint == before.fingerprint


def test_images_are_scaled_and_cut(tmp_path):
    top = tmp_path / "pictures" / "wide"
    top.mkdir(parents=True)
    wide = np.zeros((20, 60, 3), np.uint8)
    wide[:, 20:40, 0] = 200  # the middle square is red, the rest black
    Image.fromarray(wide).save(top / "a.bmp")
    images = load(tmp_path, size=10)
    assert images.images.shape == (1, 10, 10, 3)
    assert (images.images[0, :, 2:8] == [200, 0, 0]).all()
    assert load(tmp_path, size=8, colour="grey").images.shape == (1, 8, 8, 1)


def test_an_unreadable_image_is_named(sample, tmp_path):
    file = sample.write_images(tmp_path / "pictures")[5][0]
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(HoldfastError, match=str(file)):
        load(tmp_path)


def test_all_unreadable_images_are_named_at_once(sample, tmp_path):
    files = [file for file, *_ in sample.write_images(tmp_path / "pictures")]
    for file in files[:3]:
        file.write_bytes(b"no image")
    with pytest.raises(HoldfastError, match=f"pictures: 3 problems among {len(files)} files: ") as caught:
        load(tmp_path)
    folder = files[0].parents[1]
    for file in files[:3]:
        assert f"{file.relative_to(folder)}: not readable as an image (unknown format" in str(caught.value)
    assert str(files[3].relative_to(folder)) not in str(caught.value)


def test_empty_and_missing_folders_are_named(sample, tmp_path):
    with pytest.raises(HoldfastError, match="pictures: no such folder"):
        load(tmp_path)
    (tmp_path / "pictures").mkdir()
    with pytest.raises(HoldfastError, match="pictures: empty"):
        load(tmp_path)
    sample.write_images(tmp_path / "pictures")
    (tmp_path / "pictures" / "dog").mkdir()
    with pytest.raises(HoldfastError, match="dog: no images"):
        load(tmp_path)


@pytest.mark.parametrize("options", [{"size": 0}, {"colour": "blue"}])
def test_wrong_options_are_named(options, sample, tmp_path):
    sample.write_images(tmp_path / "pictures")
    with pytest.raises(HoldfastError, match=next(iter(options))):
        load(tmp_path, **options)


def test_images_in_no_class_folder_are_not_called_nothing(sample, tmp_path):
    (tmp_path / "pictures").mkdir()
    for number in range(2):
        Image.new("RGB", (8, 8)).save(tmp_path / "pictures" / f"{number}.png")
    with pytest.raises(HoldfastError, match="2 images, but in no folder; expected one folder per class"):
        load(tmp_path)
