"""The event log has every epoch once, and training removes what a kill left."""

import json

import pytest

from holdfast.core.errors import HoldfastError
from holdfast.core.run_folder import RunFolder
from holdfast.train.data.device_images import DeviceImages
from holdfast.train.engine import FitOptions, ScenarioSetup, train_scenario
from holdfast.train.engine.checkpoint import CheckpointFile
from holdfast.train.events import EpochEnded, EventLog, StepsDone, TaskBegan, TaskEnded, read_events
from holdfast.train.methods import ER, SimplexHOC

OPTIONS = FitOptions(epochs=1, batch_size=8, crop_padding=1)


def begin(task, step):
    return TaskBegan(task, step, 4, 2, "eager")


def epoch(task, number, step):
    return EpochEnded(task, number, step, 0.1, 1.0, {"ce": 1.0}, 1.0)


def positions(path):
    return [(event["event"], event["task"], event.get("step")) for event in read_events(path)]


def test_lines_of_undone_work_are_dropped(tmp_path):
    log = EventLog(tmp_path / "log.jsonl")
    first = [begin(1, 0), epoch(1, 1, 2), epoch(1, 2, 4), TaskEnded(1, 2)]
    for event in [*first, begin(2, 0), epoch(2, 1, 2), epoch(2, 2, 4)]:
        log(event)
    EventLog(log.path)(begin(2, 2))
    kept = [("begin", 1, 0), ("epoch", 1, 2), ("epoch", 1, 4), ("task", 1, None), ("begin", 2, 0), ("epoch", 2, 2)]
    assert positions(log.path) == [*kept, ("begin", 2, 2)]
    EventLog(log.path)(begin(1, 0))
    assert positions(log.path) == [("begin", 1, 0)]


def test_a_line_cut_short_is_passed_over(tmp_path):
    path = tmp_path / "log.jsonl"
    log = EventLog(path)
    log(begin(1, 0))
    with path.open("a") as file:
        file.write('{"event": "epo')
    assert positions(path) == [("begin", 1, 0)]
    log(begin(1, 2))
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [0, 2]


def test_pulses_are_not_written(tmp_path):
    log = EventLog(tmp_path / "log.jsonl")
    log(StepsDone(1, 1))
    assert not log.path.exists()


def train(folder, scenario, images, make_small, method=ER, dim=None):
    train_scenario(
        scenario,
        DeviceImages(images),
        folder,
        ScenarioSetup(
            make_encoder=lambda: make_small(dim),
            make_method=method,
            options=OPTIONS,
        ),
    )


def test_engine_removes_what_a_kill_left(tmp_path, two_tasks, glyph_images, make_small):
    folder = RunFolder(tmp_path)
    left = [folder.path, folder.models, folder.features, folder.features / "01"]
    for place in left:
        place.mkdir(parents=True, exist_ok=True)
        (place / ".tmp-file").write_text("half")
    (folder.models / ".tmp-folder").mkdir()
    (folder.models / ".tmp-folder" / "model.safetensors").write_text("half")
    CheckpointFile(folder.checkpoint).path.write_text("not even a checkpoint")
    with pytest.raises(HoldfastError, match="delete it to start task 1"):
        train(folder, two_tasks, glyph_images, make_small)
    folder.checkpoint.unlink()
    train(folder, two_tasks, glyph_images, make_small)
    assert not list(folder.path.rglob(".tmp-*"))
    folder.checkpoint.write_text("left by a kill after the last model was saved")
    train(folder, two_tasks, glyph_images, make_small)
    assert not folder.checkpoint.exists()


def test_state_of_another_method_is_refused(tmp_path, two_tasks, glyph_images, make_small, snapshot):
    folder = RunFolder(tmp_path)
    train(folder, two_tasks, glyph_images, make_small, lambda: SimplexHOC(slots=6), 5)
    folder.model(2).rename(tmp_path / "second")
    before = snapshot(folder.path)
    with pytest.raises(HoldfastError, match=r"models/01/method\.safetensors: does not fit this method"):
        train(folder, two_tasks, glyph_images, make_small)
    assert snapshot(folder.path) == before


def test_a_log_of_which_nothing_is_undone_is_not_written_again(tmp_path):
    log = EventLog(tmp_path / "log.jsonl")
    for event in [begin(1, 0), epoch(1, 1, 2), TaskEnded(1, 2)]:
        log(event)
    file = log.path.stat().st_ino
    log(begin(2, 0))
    assert log.path.stat().st_ino == file  # a new file would have been renamed over it
    assert positions(log.path)[-1] == ("begin", 2, 0)


def test_no_log_has_no_events(tmp_path):
    assert read_events(tmp_path / "none") == []
