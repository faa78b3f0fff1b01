"""Each sink against the calls it makes of its package, and against the package itself where it is installed."""

import sys
import time
import types

import pytest

from holdfast.train.experiments.sinks import MLflow, TensorBoard, WandB


class FakeWandB(types.ModuleType):
    """The few calls of wandb that are used, kept in ``calls``."""

    def __init__(self):
        super().__init__("wandb")
        self.calls = []

    def Settings(self, **options):  # noqa: N802
        return options

    def init(self, **options):
        self.calls.append(("init", options))
        keep = lambda name: lambda *words, **options: self.calls.append((name, *words, options))  # noqa: E731
        summary = types.SimpleNamespace(update=keep("summary"))
        names = ("define_metric", "log", "finish")
        return types.SimpleNamespace(summary=summary, **{name: keep(name) for name in names})


def used(sink, *, steps, finished=True):
    """One sitting."""
    sink.open()
    for step in steps:
        sink.scalars({"loss/ce": 1.0 / step, "lr": 0.1}, step)
    if finished:
        sink.summary({"template/AC": 1.0}, steps[-1])
    sink.close(finished)


def test_wandb_goes_on_with_the_same_run(logged, monkeypatch):
    fake = FakeWandB()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    WandB.require()
    used(WandB(logged), steps=[2, 4], finished=False)
    used(WandB(logged), steps=[4, 6])
    first, second = (options for name, options, *_ in fake.calls if name == "init")
    assert first["id"] == second["id"] == logged.stored_id("wandb")
    assert (first["project"], first["name"], first["resume"]) == ("holdfast", "my-run", "allow")
    assert first["config"] == {"seed": 3, "train.lr": 0.1}
    assert [words[0]["step"] for name, *words in fake.calls if name == "log"] == [2, 4, 4, 6]
    assert [options for name, *_, options in fake.calls if name == "finish"] == [{"exit_code": 1}, {"exit_code": 0}]
    assert [words[0] for name, *words in fake.calls if name == "summary"] == [{"template/AC": 1.0}]


def test_two_runs_are_two_runs_on_wandb(logged, tmp_path, monkeypatch):
    from holdfast.core.run_folder import RunFolder
    from holdfast.train.experiments.sinks import LoggedRun

    fake = FakeWandB()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    monkeypatch.setenv("WANDB_PROJECT", "birds")
    for run in (logged, LoggedRun(RunFolder(tmp_path / "other"), {})):
        used(WandB(run), steps=[2])
    first, second = (options for name, options, *_ in fake.calls if name == "init")
    assert first["id"] != second["id"]
    assert first["project"] == "birds"
    assert first["reinit"] == "create_new"


def test_wandb_itself_offline(logged, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    used(WandB(logged), steps=[2, 4], finished=False)
    used(WandB(logged), steps=[4, 6])
    runs = sorted((logged.folder.path / "wandb").glob(f"offline-run-*/run-{logged.stored_id('wandb')}.wandb"))
    assert len(runs) == 2
    written = b""
    end = time.monotonic() + 10
    while time.monotonic() < end:  # W&B writes from a process of its own
        written = b"".join(run.read_bytes() for run in runs)
        if written.count(b"loss/ce") >= 4 and b"template/AC" in written:
            return
        time.sleep(0.05)
    pytest.fail(f"{len(written)} bytes without the losses or the summary")


class FakeMLflow:
    """A store with the few calls of MLflow's client that are used; as modules, for it to be imported from."""

    def __init__(self, monkeypatch):
        self.runs, self.experiments = {}, {}
        store = self

        class MlflowException(Exception):  # noqa: N818
            error_code = "RESOURCE_DOES_NOT_EXIST"

        class MlflowClient:
            def get_experiment_by_name(self, name):
                return types.SimpleNamespace(experiment_id=name) if name in store.experiments else None

            def create_experiment(self, name):
                store.experiments[name] = True
                return name

            def create_run(self, experiment_id, run_name):
                number = f"run{len(store.runs)}"
                store.runs[number] = {"name": run_name, "experiment": experiment_id, "metrics": [], "params": []}
                return types.SimpleNamespace(info=types.SimpleNamespace(run_id=number))

            def get_run(self, number):
                if number not in store.runs:
                    raise MlflowException("Run not found")

            def update_run(self, number, status):
                store.runs[number]["status"] = status

            def log_batch(self, number, metrics=(), params=()):
                assert len(params) <= 100
                store.runs[number]["metrics"] += metrics
                store.runs[number]["params"] += params

            def set_terminated(self, number, status):
                store.runs[number]["status"] = status

        for name, members in {
            "mlflow": {},
            "mlflow.tracking": {"MlflowClient": MlflowClient},
            "mlflow.exceptions": {"MlflowException": MlflowException},
            "mlflow.entities": {"Metric": lambda *words: words, "Param": lambda *words: words},
        }.items():
            module = types.ModuleType(name)
            vars(module).update(members)
            monkeypatch.setitem(sys.modules, name, module)


def test_mlflow_goes_on_with_the_same_run(logged, monkeypatch):
    store = FakeMLflow(monkeypatch)
    MLflow.require()
    used(MLflow(logged), steps=[2, 4], finished=False)
    assert store.runs["run0"]["status"] == "KILLED"
    used(MLflow(logged), steps=[4, 6])
    (run,) = store.runs.values()
    assert (run["name"], run["experiment"], run["status"]) == ("my-run", "holdfast", "FINISHED")
    assert run["params"] == [("seed", "3"), ("train.lr", "0.1")]
    assert [step for name, _, _, step in run["metrics"] if name == "loss/ce"] == [2, 4, 4, 6]
    assert [step for name, _, _, step in run["metrics"] if name == "template/AC"] == [6]


def test_mlflow_begins_anew_only_where_the_store_has_lost_the_run(logged, monkeypatch):
    store = FakeMLflow(monkeypatch)
    used(MLflow(logged), steps=[2])
    store.runs["another"] = store.runs.pop("run0")
    used(MLflow(logged), steps=[4])
    assert logged.stored_id("mlflow") in store.runs
    sys.modules["mlflow.exceptions"].MlflowException.error_code = "INTERNAL_ERROR"
    store.runs.pop(logged.stored_id("mlflow"))
    with pytest.raises(sys.modules["mlflow.exceptions"].MlflowException):
        MLflow(logged).open()


def test_mlflow_takes_many_and_long_settings(logged, monkeypatch):
    from dataclasses import replace

    store = FakeMLflow(monkeypatch)
    many = {f"key{number}": "x" * 900 for number in range(250)}
    used(MLflow(replace(logged, settings=many)), steps=[2])
    assert len(store.runs["run0"]["params"]) == 250
    assert {len(value) for _, value in store.runs["run0"]["params"]} == {500}


def test_mlflow_itself_in_a_local_store(logged, tmp_path, monkeypatch):
    tracking = pytest.importorskip("mlflow.tracking")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "store").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.delenv("MLFLOW_EXPERIMENT_NAME", raising=False)
    used(MLflow(logged), steps=[2, 4], finished=False)
    used(MLflow(logged), steps=[4, 6])
    client = tracking.MlflowClient()
    (run,) = client.search_runs([client.get_experiment_by_name("holdfast").experiment_id])
    assert (run.info.run_id, run.info.status) == (logged.stored_id("mlflow"), "FINISHED")
    assert run.data.params == {"seed": "3", "train.lr": "0.1"}
    assert [metric.step for metric in client.get_metric_history(run.info.run_id, "loss/ce")] == [2, 4, 4, 6]
    assert run.data.metrics["template/AC"] == 1.0
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "another").as_uri())
    used(MLflow(logged), steps=[8])  # a store that does not know the run gets a new one
    assert tracking.MlflowClient().get_run(logged.stored_id("mlflow")).data.metrics["loss/ce"] == 1 / 8


def test_tensorboard_itself(logged):
    reading = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    TensorBoard.require()
    used(TensorBoard(logged), steps=[2, 4], finished=False)
    used(TensorBoard(logged), steps=[6])
    found = reading.EventAccumulator(str(logged.folder.path / "tensorboard")).Reload()
    assert [event.step for event in found.Scalars("loss/ce")] == [2, 4, 6]
    assert [(event.step, event.value) for event in found.Scalars("template/AC")] == [(6, 1.0)]


def test_a_killed_run_goes_on_as_the_same_one(short_run, tmp_path, monkeypatch):
    store = FakeMLflow(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        short_run("mlflow", stop_at=1)
    assert [run["status"] for run in store.runs.values()] == ["KILLED"]
    short_run("mlflow")
    (run,) = store.runs.values()
    assert run["status"] == "FINISHED"
    assert [value for name, value, _, _ in run["metrics"] if name == "task"] == [1.0, 2.0, 3.0]
