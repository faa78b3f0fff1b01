"""What a user can get wrong: one line on stderr, a status that is not 0, and earlier results untouched."""

import errno
import shutil

import pytest

from holdfast.cli import main


@pytest.fixture
def refused(monkeypatch, capsys):
    """Run ``main`` in this process; its one line on stderr, after warnings of the run."""

    def call(*words, status=1):
        monkeypatch.setattr("sys.argv", ["holdfast", *(str(word) for word in words)])
        with pytest.raises(SystemExit) as end:
            main()
        printed = capsys.readouterr()
        assert end.value.code == status
        assert printed.out == ""
        lines = [line for line in printed.err.splitlines(keepends=True) if ": warning: " not in line]
        assert len(lines) == 1
        assert lines[0].startswith("holdfast: ")
        assert printed.err.endswith(lines[0])
        return lines[0]

    return call


@pytest.fixture
def earlier(tiny_run, tmp_path):
    """A copy of a finished run, and a look at what is in it."""
    folder = shutil.copytree(tiny_run, tmp_path / "earlier")

    def contents():
        return {str(file): file.read_bytes() for file in folder.rglob("*") if file.is_file()}

    return folder, contents


def test_a_folder_with_only_what_a_kill_left_is_free(tiny_recipe, tmp_path, monkeypatch, capsys):
    (tmp_path / ".tmp-abc").write_text("half a recipe.toml")
    words = ["run", str(tiny_recipe), "--out", str(tmp_path), "--set", "train.epochs=1"]
    monkeypatch.setattr("sys.argv", ["holdfast", *words])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 0
    assert not (tmp_path / ".tmp-abc").exists()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["run", "nonesuch"], "no built-in recipe of this name"),
        (["run", "demo", "--device", "gpu"], "unknown device 'gpu'"),
        (["evaluate", "nonesuch"], "not a run folder"),
    ],
)
def test_other_mistakes(words, reason, refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert reason in refused(*words)
    assert not list(tmp_path.iterdir())


def test_interrupted(refused, monkeypatch, tiny_recipe, tmp_path):
    def interrupt(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("holdfast.train.experiments.execute.assemble", interrupt)
    assert "finished work is kept" in refused("run", tiny_recipe, "--out", tmp_path / "run", status=130)


def test_evaluate_refuses_a_run_that_lost_features(refused, tiny_run, tmp_path):
    folder = shutil.copytree(tiny_run, tmp_path / "run")
    before = (folder / "metrics.json").read_bytes()
    shutil.rmtree(folder / "features" / "02")
    assert "features of 1 model, but the run has 3" in refused("evaluate", folder)
    assert (folder / "metrics.json").read_bytes() == before


def test_a_full_disk_is_told_with_what_to_do(refused, monkeypatch, tiny_run, tmp_path):
    def full(*words, **options):
        raise OSError(errno.ENOSPC, "No space left on device", str(tmp_path / "model.onnx"))

    monkeypatch.setattr("holdfast.train.encoders.encoder_export.export_onnx", full)
    line = refused("export", tiny_run / "models" / "01", tmp_path / "model.onnx")
    assert line.endswith("model.onnx'; free some space and run the same command again\n")


@pytest.mark.parametrize("lost", ["features/03", "metrics.json"])
def test_a_history_of_an_unfinished_run_is_refused(lost, earlier, capsys, monkeypatch):
    folder, _ = earlier
    target = folder / lost
    if target.is_dir():
        shutil.rmtree(target)
    else:
        target.unlink()
    monkeypatch.setattr("sys.argv", ["holdfast", "check-history", str(folder)])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    message = capsys.readouterr().err
    assert "unfinished run" in message or "features of 2 models, but the run has 3" in message


def test_targets_are_refused_before_the_work(refused, earlier, tmp_path):
    folder, contents = earlier
    (tmp_path / "taken.html").mkdir()
    before = contents()
    message = refused("check-history", folder, "--page", tmp_path / "taken.html", status=2)
    assert "taken.html: is a folder; name a file" in message
    assert contents() == before
