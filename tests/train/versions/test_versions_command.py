"""What a new user types."""

import json
import re
import shlex
from pathlib import Path

import pytest
from letters_on_disk import write_folder
from typer.testing import CliRunner

from holdfast.cli import app
from holdfast.train.data import load_split
from holdfast.train.encoders import Encoder

ROOT = Path(__file__).parents[3]


def commands(page):
    """The first block of commands with ``holdfast start``."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    block = next(block for block in blocks if "holdfast start" in block)
    return [line for line in block.splitlines() if line.startswith("holdfast ")]


def test_both_pages_say_the_same():
    def of_models(page):
        return [line for line in commands(page) if not line.startswith("holdfast gallery")]

    assert of_models("README.md") == of_models("docs/own-data.md")
    assert len(of_models("README.md")) == 2


@pytest.mark.slow
def test_from_nothing_to_a_second_version(tmp_path, monkeypatch):
    letters = load_split("glyphs", "train", size=32, train_classes=4, test_classes=3, per_class_train=6)
    write_folder(letters, (0, 1), tmp_path / "photos" / "spring")
    write_folder(letters, (2, 3), tmp_path / "photos" / "summer")
    typed_commands = [shlex.split(line) for line in commands("README.md")]
    assert [words[1] for words in typed_commands] == ["start", "gallery", "gallery", "update", "gallery"]
    monkeypatch.chdir(tmp_path)
    printed = [typed(*words[1:]) for words in typed_commands]
    assert "version 2, trained on" in printed[3]
    first, second = (Encoder.from_pretrained(tmp_path / "models" / name) for name in ("1", "2"))
    image = next((tmp_path / "photos" / "summer" / "02").iterdir())
    assert first.encode([image]).shape == second.encode([image]).shape
    assert second.info["slots"]["owners"] == {"00": 0, "01": 1, "02": 2, "03": 3}
    verdict = json.loads((tmp_path / "models" / "2" / "check.json").read_text())["verdict"]
    assert verdict in ("better", "not shown", "worse", "not judged")


def test_the_page_in_python(photos, tmp_path, monkeypatch, capsys):
    """The page's code, on drawn characters; the default network would take longer than a test may."""
    (code,) = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs/own-data.md").read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "photos").mkdir()
    for name, number in (("spring", "1"), ("summer", "2")):
        (tmp_path / "photos" / name).symlink_to(photos / number)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "docs/own-data.md", "exec"), {})
    said = capsys.readouterr().out.strip()
    answers = r"(yes|no|not shown) (better|not shown|worse)"
    assert re.fullmatch(f"known classes At most 1 point lost {answers}", said)


def typed(*words, status=0):
    result = CliRunner(env={"COLUMNS": "80"}).invoke(app, [str(word) for word in words])
    assert result.exit_code == status, result.output
    return result.stdout


def test_what_is_printed(first, second, photos):
    """Asked again for what is done, it only tells."""
    again = ("update", "--from", first, "--data", photos / "2", "--out", second, "--device", "cpu")
    record = json.loads(typed(*again, "--json"))
    assert record["version"] == 2
    assert record["slots"] == {"all": 12, "owned": 5}
    assert record["verdict"] == record["check"]["verdict"]
    text = typed(*again)
    words = " ".join(text.split())
    assert f"{record['data']['images']} images of 2 new" in words
    (shown,) = re.findall(r"^```text\n(.*?)^```", (ROOT / "docs/own-data.md").read_text(), re.MULTILINE | re.DOTALL)
    for part in (
        "Accuracy, trained classes: the nearest neighbour is right",
        "images. Better than keeping the old model on known",
    ):
        assert part in words
        assert part in " ".join(shown.split())
    assert "all classes" in text
    assert "known classes" in text
    assert "Checked against model 1, on held-out images. Better than keeping the old model" in words
    assert max(len(line) for line in text.splitlines() if not line.startswith("Evidence: ")) <= 80
    typed(*again, "--max-loss", "0.01", status=record["check"]["exit_code"])


def test_help_says_how_to_begin():
    assert "holdfast update --from models/1 --data photos/summer --out models/2" in " ".join(
        typed("start", "-h").split()
    )
    for option in ("--backbone", "--buffer-from", "--check-on", "--recipe", "--max-loss"):
        assert option in typed("update", "-h")
