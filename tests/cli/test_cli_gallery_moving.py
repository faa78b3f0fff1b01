"""``holdfast gallery backfill`` and ``rollback``, as text, as JSON and interrupted."""

import pytest
from PIL import Image

from holdfast.core.errors import HoldfastError
from holdfast.gallery import Gallery

pytest.importorskip("qdrant_edge")


@pytest.fixture
def upgraded(holdfast, tiny_run, tmp_path):
    """Twelve pictures of three kinds by version 1; version 2 is registered."""
    for number in range(12):
        file = tmp_path / "shown" / f"kind{number % 3}" / f"{number:02d}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.linear_gradient("L").rotate(30 * number).resize((16, 16)).save(file)
    folder = tmp_path / "g"
    holdfast("gallery", "create", folder, "--model", tiny_run / "models" / "01")
    holdfast("gallery", "add", folder, tmp_path / "shown", "--labels-from-folders")
    holdfast("gallery", "register", folder, tiny_run / "models" / "02", "--force")
    return folder


def items(holdfast_json, folder):
    return [(row["number"], row["items"]) for row in holdfast_json("gallery", "versions", folder)]


def test_there_and_back(holdfast, holdfast_json, upgraded, tmp_path):
    holdfast("gallery", "search", upgraded, tmp_path / "shown" / "kind1" / "07.png", "--k", "1")
    some = holdfast_json("gallery", "backfill", upgraded, "--limit", "3", "--rate", "1000")
    assert (some["to"], some["moved"], some["left"], some["share"]) == (2, 3, 9, 0.25)
    assert items(holdfast_json, upgraded) == [(1, 9), (2, 3)]
    text = holdfast("gallery", "backfill", upgraded, "--to", "2")
    assert "9 items moved to version 2 at" in text
    assert "100.00 % backfilled; 0 still to move, 0 without an image, 0 unreadable" in text
    assert all(len(line) <= 80 for line in text.splitlines() if not line.startswith(f"{upgraded}: "))
    assert items(holdfast_json, upgraded) == [(1, 0), (2, 12)]

    text = holdfast("gallery", "rollback", upgraded)
    assert "version 2 was removed, version 1 is the newest" in text
    assert "12 items embedded again, 0 dropped" in text
    assert items(holdfast_json, upgraded) == [(1, 12)]
    with pytest.raises(HoldfastError, match="none before it"):
        holdfast("gallery", "rollback", upgraded)


def test_interrupted(holdfast, holdfast_json, upgraded, monkeypatch):
    def pressed(*_, **__):
        raise KeyboardInterrupt

    for verb in ("backfill", "rollback"):
        with monkeypatch.context() as patch:
            patch.setattr(Gallery, verb, pressed)
            holdfast("gallery", verb, upgraded, status=130)
    assert items(holdfast_json, upgraded) == [(1, 12), (2, 0)]
