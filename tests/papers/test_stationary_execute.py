"""Cells that are really run: recorded at once, never repeated, stopped and gone on with to the same numbers."""

import json
import multiprocessing
import threading
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from holdfast.core.errors import DivergedError
from holdfast.core.run_folder import RunFolder
from holdfast.train.encoders import ModelFeatures
from holdfast.train.evaluation.matrix import compatibility_matrix
from holdfast.train.experiments.assemble import SharedData
from papers.stationary import PAGES, ResultPage, Results, StudyRun, bridge_scores
from papers.stationary.__main__ import app
from papers.stationary.execute import execute_runs, measuring_processes, planned_run
from papers.stationary.formatting import scores
from papers.stationary.results import row


@pytest.fixture
def runs(tiny_recipe):
    return [
        StudyRun("paper", str(tiny_recipe), "simplex_hoc", 3, seed=0, family="tiny"),
        StudyRun("paper", str(tiny_recipe), "simplex_hoc", 3, seed=1, family="tiny"),
        StudyRun(
            "ablation", str(tiny_recipe), "simplex_hoc", 3, change="rho-7", settings=("method.rho=7.0",), family="tiny"
        ),
    ]


def test_readings_score_the_same_models_by_readout_and_map(tiny_recipe, tmp_path):
    run = StudyRun("paper", str(tiny_recipe), "simplex_hoc", 3, family="tiny", measures=("readings",))
    execute([run], tmp_path / "runs", tmp_path / "results")
    record = Results(tmp_path / "results").record(run)
    readings = record["readings"]
    assert {readout: list(maps) for readout, maps in readings.items()} == {
        readout: ["plain", "rotation_gallery"] for readout in ("simplex", "backbone")
    }  # images of other classes are for models of CIFAR100 only
    for protocol, own in record["protocols"].items():
        assert readings["simplex"]["plain"][protocol]["AA"] == pytest.approx(own["AA"], abs=1e-5)
        plain, rotated = (
            np.array(readings["simplex"][name][protocol]["matrix"], float) for name in readings["simplex"]
        )
        np.testing.assert_array_equal(plain.diagonal(), rotated.diagonal())  # self-tests are never mapped
        assert readings["backbone"]["plain"][protocol]["matrix"] != readings["simplex"]["plain"][protocol]["matrix"]


def test_measures_in_a_process_of_their_own_are_the_same(tiny_recipe, tmp_path, monkeypatch):
    """As on a GPU, where a thread of the process that trains would be slow."""
    run = StudyRun("paper", str(tiny_recipe), "simplex_hoc", 3, family="tiny", measures=("readings",))
    execute([run], tmp_path / "runs", tmp_path / "in_thread")
    pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
    monkeypatch.setattr("papers.stationary.execute.measuring_processes", lambda runs, device: pool)
    execute([run], tmp_path / "again", tmp_path / "in_process")
    in_thread, in_process = (Results(tmp_path / name).record(run) for name in ("in_thread", "in_process"))
    assert in_process["readings"] == in_thread["readings"]
    with pytest.raises(RuntimeError, match="shutdown"):
        pool.submit(len, "")  # the processes ended with the sweep


def test_processes_are_for_a_gpu_and_for_runs_with_measures(runs):
    gpu, cpu = torch.device("cuda"), torch.device("cpu")
    measured = [replace(runs[0], measures=("readings",))]
    assert measuring_processes(measured, cpu) is None
    assert measuring_processes(runs, gpu) is None
    with measuring_processes(measured, gpu) as pool:  # no process starts before the first run has ended
        assert pool is not None


@pytest.fixture
def few_pairs(monkeypatch):
    monkeypatch.setattr("papers.stationary.readings.PAIRS", 6)
    monkeypatch.setattr("papers.stationary.bridge_scores.PAIR_COUNTS", (3, 6, 100_000))


def test_bridge_scores_of_a_method_with_a_simplex(tiny_recipe, tmp_path, few_pairs):
    """Read from the backbone. The images of other classes and the second test are for models of CIFAR100 only."""
    run = StudyRun("paper", str(tiny_recipe), "simplex_hoc", 3, family="tiny", measures=("readings", "bridged"))
    execute([run], tmp_path / "runs", tmp_path / "results")
    record = Results(tmp_path / "results").record(run)
    found, readings = record["bridged"], record["readings"]["backbone"]
    assert list(found) == ["plain", "rotation_gallery", "draws", "counts", "without_pairs", "reembedded"]
    for name in ("plain", "rotation_gallery"):
        for protocol in ("template", "instance"):
            assert found[name][protocol]["matrix"] == readings[name][protocol]["matrix"]
            matrix = np.array(found[name][protocol]["matrix"], float)
            assert found[name][protocol]["self"] == pytest.approx(matrix.diagonal().mean(), abs=1e-4)
            assert found[name][protocol]["cross"] == pytest.approx(matrix[np.tril_indices(3, -1)].mean(), abs=1e-4)
    draws = found["draws"]["rotation_gallery"]
    assert len(draws) == 5
    assert draws[0] == {name: found["rotation_gallery"]["template"][name] for name in draws[0]}
    assert list(found["counts"]) == ["3", "6"]  # a count above the gallery's size is left out
    assert found["counts"]["6"] == draws[0] != found["counts"]["3"]
    # Self-tests have no rotation and no image embedded again; without the pairs the gallery is smaller.
    for protocol in ("template", "instance"):
        own = found["plain"][protocol]["self"]
        assert found["reembedded"][protocol]["self"] == found["rotation_gallery"][protocol]["self"] == own
    smaller = found["without_pairs"]
    assert smaller["plain"]["instance"]["self"] == smaller["rotation_gallery"]["instance"]["self"]
    assert smaller["plain"]["instance"] != {name: found["plain"]["instance"][name] for name in draws[0]}


def made_up_models(count=3, *, queries=40, gallery=30, dim=6):
    """Models that differ by a rotation and noise, with classes of different sizes, and class 5 in the gallery only."""
    rng = np.random.default_rng(0)
    labels = rng.choice([1, 2, 4], queries), rng.choice([1, 2, 4, 5], gallery, p=[0.5, 0.2, 0.2, 0.1])
    centres = {label: rng.normal(size=dim) for label in (1, 2, 4, 5)}
    base = [np.stack([centres[one] for one in part]) + rng.normal(size=(len(part), dim)) for part in labels]

    def model():
        turn = np.linalg.qr(rng.normal(size=(dim, dim)))[0]
        return ModelFeatures(*((part + 0.3 * rng.normal(size=part.shape)) @ turn for part in base))

    return [model() for _ in range(count)], labels


def searched(models, labels, pairs, learned=()):
    cpu = torch.device("cpu")
    fitted = {"rotation_gallery": bridge_scores.rotation_matrices([one.gallery[pairs] for one in models], cpu)}
    test = bridge_scores.Searches(models, labels, pairs, learned=learned, device=cpu)
    return test.scores(fitted, by_instance=list(fitted)), fitted["rotation_gallery"]


@pytest.mark.parametrize("protocol", ["template", "instance"])
def test_many_searches_at_once_have_the_scores_of_the_compatibility_matrix(protocol):
    models, labels = made_up_models()
    pairs = np.arange(0, 30, 3)
    found, matrices = searched(models, labels, pairs)

    def turn(matrix):
        return lambda queries: queries @ matrix

    maps = {cell: turn(matrix) for cell, matrix in matrices.items()}
    kept = np.setdiff1d(np.arange(30), pairs)
    fewer = [ModelFeatures(one.query, one.gallery[kept]) for one in models], (labels[0], labels[1][kept])
    expected = {
        "plain": compatibility_matrix(models, *labels, protocol=protocol),
        "rotation_gallery": compatibility_matrix(models, *labels, protocol=protocol, query_maps=maps),
        "plain without pairs": compatibility_matrix(fewer[0], *fewer[1], protocol=protocol),
        "rotation_gallery without pairs": compatibility_matrix(fewer[0], *fewer[1], protocol=protocol, query_maps=maps),
    }
    assert set(found) == {*expected, "reembedded"}
    for name, matrix in expected.items():
        np.testing.assert_allclose(found[name][protocol], matrix, atol=1e-9)
    assert not np.allclose(expected["plain"], expected["rotation_gallery"], equal_nan=True)
    # Images embedded again, one cell by hand: queries and pairs of model 3, the other images of model 1.
    mixed = models[0].gallery / np.linalg.norm(models[0].gallery, axis=1, keepdims=True)
    mixed[pairs] = (models[2].gallery / np.linalg.norm(models[2].gallery, axis=1, keepdims=True))[pairs]
    alone = compatibility_matrix([(models[2].query, mixed)], *labels, protocol=protocol)
    assert found["reembedded"][protocol][2, 0] == pytest.approx(alone[0, 0])


def execute(runs, folder, results, **options):
    cpu = torch.device("cpu")
    return execute_runs(runs, folder, results, shared=SharedData(), device=cpu, parallel=2, **options)


def test_each_run_leaves_its_record_and_only_missing_ones_are_run(runs, tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_COMMIT", "0123abc")
    results = tmp_path / "results"
    seen = []

    def watch(name, event):
        if event.kind == "done":
            seen.append((name, (results / f"{name}.json").exists()))

    found = execute(runs[:2], tmp_path / "runs", results, watch=watch)
    assert sorted(seen) == [
        ("tiny/paper/simplex_hoc-t3-natural-s0", True),
        ("tiny/paper/simplex_hoc-t3-natural-s1", True),
    ]
    assert Results(results).missing(runs) == runs[2:]
    record = Results(results).record(runs[1])
    assert record["command"] == runs[1].command
    assert record["protocols"] == found["tiny/paper/simplex_hoc-t3-natural-s1"]["protocols"]
    assert record["runs_at_once"] == 2
    assert 0 <= record["gpu_minutes"] <= 1
    assert record["environment"]["executor"] == "eager"  # the recipe says auto
    assert record["environment"]["commit"] == "0123abc"
    folder = RunFolder(tmp_path / "runs" / "tiny" / "paper" / "simplex_hoc-t3-natural-s0")
    assert folder.metrics.exists()
    assert not folder.features.exists()


def test_a_run_of_the_fused_kernels_is_made_without_them_on_a_cpu(tiny_recipe, tmp_path):
    """The same run but for rounding: it counts as the run's, and its record says how it was made."""
    run = StudyRun("paper", str(tiny_recipe), "simplex_hoc", 3, settings=("train.executor=fused",), family="tiny")
    gpu, cpu = (planned_run(run, torch.device(name)) for name in ("cuda", "cpu"))
    assert (gpu.recipe["train"]["executor"], gpu.command) == ("fused", run.command)
    assert cpu.recipe["train"]["executor"] == "auto"
    (metrics,) = execute([run], tmp_path / "runs", tmp_path / "results").values()
    record = Results(tmp_path / "results").record(run)
    assert record["protocols"] == metrics["protocols"]
    assert record["environment"]["executor"] == "eager"
    assert record["recipe"]["train"]["executor"] == "auto"
    assert record["command"] == cpu.command == f"{run.command} --set train.executor=auto"


def test_other_settings_are_another_run(runs, tmp_path, fake):
    fake(runs[0], tmp_path)
    assert Results(tmp_path).record(runs[0]) is not None
    path = tmp_path / runs[0].path
    record = json.loads(path.read_text())
    record["recipe"]["method"]["rho"] = 6.0
    path.write_text(json.dumps(record))
    assert Results(tmp_path).record(runs[0]) is None


def test_time_is_up_and_later_it_goes_on(runs, tmp_path, monkeypatch):
    stopped = execute(runs[:1], tmp_path / "runs", tmp_path / "results", limit_minutes=0.0)
    assert [str(error) for error in stopped.values()] == ["interrupted"]
    assert Results(tmp_path / "results").missing(runs[:1]) == runs[:1]
    timers = []

    class Clock:
        """Strikes when it is told to, however slow the machine is."""

        def __init__(self, seconds, strike):
            self.seconds, self.strike = seconds, strike
            timers.append(self)

        def start(self):
            pass

        def cancel(self):
            pass

    def strike_in_the_second_task(name, event):
        if event.kind == "begin" and event.task == 2:
            timers[0].strike()

    monkeypatch.setattr(threading, "Timer", Clock)
    cut = execute(runs[:1], tmp_path / "runs", tmp_path / "results", limit_minutes=0.5, watch=strike_in_the_second_task)
    assert timers[0].seconds == 30
    assert [str(error) for error in cut.values()] == ["interrupted"]
    again = []
    execute(runs[:1], tmp_path / "runs", tmp_path / "results", watch=lambda name, event: again.append(event))
    assert next(event.task for event in again if event.kind == "begin") > 1
    execute(runs[:1], tmp_path / "other", tmp_path / "whole")
    one, other = (Results(tmp_path / folder).record(runs[0]) for folder in ("results", "whole"))
    assert one["protocols"] == other["protocols"]


def test_a_run_that_diverges_is_recorded_without_scores_and_not_run_again(tiny_recipe, tmp_path):
    bad = StudyRun("paper", str(tiny_recipe), "simplex_hoc", 3, settings=("train.lr=1e30",), family="tiny")
    (error,) = execute([bad], tmp_path / "runs", tmp_path / "results").values()
    assert isinstance(error, DivergedError)
    results = Results(tmp_path / "results")
    assert results.diverged(bad)
    assert results.missing([bad]) == []
    assert results.record(bad) is None
    line = row([bad], results, paper=None)
    assert (line["missing"], line["diverged"], line["AC"]) == ([], [0], None)
    assert scores(line) == ["diverged", "", ""]
    record = json.loads((tmp_path / "results" / bad.path).read_text())
    assert record["diverged"] == str(error)
    assert "protocols" not in record


def test_from_the_command_line(runs, tmp_path, monkeypatch):
    """Missing runs are carried out, shown and kept; the same command again finds nothing to do."""
    tiny = ResultPage(
        "a tiny table",
        lambda: runs[:1],
        lambda results, selection: [row(runs[:1], results, paper=None)],
        lambda results, selection: [],
    )
    monkeypatch.setitem(PAGES, "tiny", tiny)
    (tmp_path / "r").mkdir()
    words = ["reproduce", "tiny", "--device", "cpu", "--out", str(tmp_path / "runs"), "--results", str(tmp_path / "r")]
    stopped = CliRunner().invoke(app, [*words, "--limit-minutes", "0"])
    assert (stopped.exit_code, "failed" in stopped.stderr) == (0, False)  # to be out of time is no failure
    assert "0 of 1 missing run is done; run the same command to resume the others." in stopped.stderr
    first = CliRunner().invoke(app, words)
    assert first.exit_code == 0, first.output
    assert "1 of 1 missing run is done." in first.stderr
    again = CliRunner().invoke(app, [*words, "--json"])
    assert "missing runs" not in again.stderr
    (found,) = json.loads(again.stdout)
    assert found["seeds"] == [0]
    assert found["files"] == ["tiny/paper/simplex_hoc-t3-natural-s0.json"]
