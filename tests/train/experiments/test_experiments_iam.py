"""IAM-CL2R from recipe to matrix: replaced models, other architectures, refusals before training, kills."""

import json
import math
import shutil
import signal

import numpy as np
import pytest

from holdfast.checks import check_history
from holdfast.core.errors import HoldfastError
from holdfast.core.run_folder import RunFolder
from holdfast.train.encoders import Encoder, FeatureStore
from holdfast.train.engine import RunControl
from holdfast.train.engine.model_slots import grow_models
from holdfast.train.evaluation import FURTHER_EVALUATIONS, run_models
from holdfast.train.experiments.assemble import SharedData, assemble
from holdfast.train.experiments.execute import execute
from holdfast.train.experiments.load import with_overrides
from holdfast.train.experiments.schema import check_recipe
from holdfast.train.methods import METHODS
from killed_runs import exit_code, kill_at, lasting


def run(tables, folder, models, *settings, **options):
    recipe = check_recipe(with_overrides(tables, settings))
    return execute(recipe, RunFolder(folder), shared=SharedData(models=models), device="cpu", **options)


def lower(matrix):
    return [cell for t, row in enumerate(matrix) for cell in row[: t + 1]]


def test_a_replacement_starts_from_the_loaded_weights(iam_tables, toy_models, tmp_path):
    """With a rate of nearly nothing, the fine-tuned models are the loaded ones, but for running statistics."""
    metrics = run(iam_tables, tmp_path / "run", toy_models, "train.lr=1e-12", "train.epochs=1")
    for number, origin in ((1, "four"), (2, "eight"), (3, "eight")):
        found = Encoder.from_pretrained(RunFolder(tmp_path / "run").model(number))
        loaded = Encoder.from_pretrained(toy_models / f"{origin}-simplex")
        for (name, one), other in zip(found.named_parameters(), loaded.parameters(), strict=True):
            assert np.allclose(one.detach(), other.detach(), atol=1e-6), (number, name)
        assert len(found.info["slots"]["owners"]) == (6, 12, 14)[number - 1]
        weights = json.loads((toy_models / f"{origin}-simplex" / "config.json").read_text())["weights_sha256"]
        assert found.info["origin"] == {"model": f"{origin}-simplex", "weights_sha256": weights}
        made = metrics["models"][f"{origin}-simplex"]
        assert made == {"weights_sha256": weights, **loaded.info["pretrained"]}
    assert [task.get("model") for task in metrics["tasks"]] == ["four-simplex", "eight-simplex", None]


@pytest.mark.parametrize("method", METHODS)
def test_another_architecture(method, iam_tables, toy_models, tmp_path):
    """Across sizes only the simplex methods can be compared: the rest is null, and never counted as compatible."""
    settings = ["scenario.replace_at=[3]", "scenario.replace_with=['wide-{head}']", "train.epochs=1"]
    metrics = run(iam_tables, tmp_path / "run", toy_models, f"method.name={method}", *settings)
    template = metrics["protocols"]["template"]
    if method.startswith("simplex"):
        assert None not in lower(template["matrix"])
        return
    assert [cell is None for cell in lower(template["matrix"])] == [False, False, False, True, True, False]
    assert template["AA"] is None
    assert template["ACA"] is None
    assert template["AC"] in (0.0, pytest.approx(1 / 3))
    assert 0 < template["AA_computable"] <= 1


@pytest.mark.parametrize(
    ("method", "reference"), [*((method, "loaded") for method in METHODS), ("fan", "deployed"), ("advbct", "deployed")]
)
def test_rehearsal_free(method, reference, iam_tables, toy_models, tmp_path):
    own = ["scenario.buffer_per_class=0", f"scenario.reference={reference}", "train.epochs=1"]
    metrics = run(iam_tables, tmp_path / "run", toy_models, f"method.name={method}", *own)
    assert None not in lower(metrics["protocols"]["template"]["matrix"])


def test_fan_crosses_a_replacement_as_it_is_or_by_a_map(iam_tables, toy_models, tmp_path):
    own = ["method.name=fan", "method.map_epochs=1", "train.epochs=1"]
    assert run(iam_tables, tmp_path / "a", toy_models, *own)["maps"] == [3]
    assert run(iam_tables, tmp_path / "b", toy_models, *own, "scenario.reference=deployed")["maps"] == [2, 3]
    features = FeatureStore(tmp_path / "a" / "features").read_all()
    assert {len(model.query[0]) for model in features} == {32}


def refusal(tables, models, *settings):
    with pytest.raises(HoldfastError) as error:
        assemble(check_recipe(with_overrides(tables, settings)), SharedData(models=models))
    assert "\n" not in str(error.value)
    return str(error.value)


def test_refused_before_training(iam_tables, toy_models, tmp_path):
    models = tmp_path / "models"
    shutil.copytree(toy_models, models)
    grow_models([models / "eight-simplex"], 30)
    assert refusal(iam_tables, models) == (
        "scenario iam_cl2r: model eight-simplex: one has 20 slots, the other 30; grow the one with 20 to 30 "
        "(holdfast slots grow)"
    )
    fewer = refusal(iam_tables, toy_models, "method.slots=21")
    assert fewer.startswith("scenario iam_cl2r: model four-simplex: one has 21 slots, the other 20")
    config = models / "four-simplex" / "config.json"
    described = json.loads(config.read_text())
    del described["info"]["slots"]
    config.write_text(json.dumps(described))
    assert refusal(iam_tables, models).startswith("model four-simplex: has no slot record")
    no_slots = "scenario.replace_with=['eight-learnable']"
    assert refusal(iam_tables, toy_models, no_slots).startswith("model eight-learnable: has no slot record")
    other = "scenario.model=four-simplex"
    assert "uses unprojected features" in refusal(iam_tables, toy_models, "method.name=er", other)
    assert "no such folder under" in refusal(iam_tables, toy_models, "scenario.model=seven")
    shared_names = "scenario.namespace=letters"
    assert "is a class of pre-training too; set namespace" in refusal(iam_tables, toy_models, shared_names)
    assert refusal(iam_tables, toy_models, "backbone.name=small").startswith("backbone: iam_cl2r takes its networks")
    assert refusal(iam_tables, toy_models, "scenario.reference=older").startswith("scenario.reference: ")


def live(tables, folder, models, dies_at=None, settings=()):
    """Run in a child that kills itself when told of ``dies_at``; its exit code."""
    return exit_code(lambda: run(tables, folder, models, *settings, resume=True, control=RunControl(kill_at(dies_at))))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fan", "simplex_hoc_views"])  # what learns maps; what has slots, views and anchors
def test_killed_around_a_replacement(method, iam_tables, toy_models, tmp_path):
    settings = [f"method.name={method}", "train.epochs=3", "train.checkpoint_minutes=0"]
    assert live(iam_tables, tmp_path / "whole", toy_models, settings=settings) == 0
    # At the end of the first task, as the replacement begins, within it, and as it is left.
    for moment in (("features", 1, None), ("begin", 2, None), ("epoch", 2, 2), ("features", 2, None), ("epoch", 3, 1)):
        assert live(iam_tables, tmp_path / "killed", toy_models, moment, settings) == -signal.SIGKILL
    assert live(iam_tables, tmp_path / "killed", toy_models, settings=settings) == 0
    assert lasting(tmp_path / "killed") == lasting(tmp_path / "whole")


def test_compact_features_give_the_same_metrics(iam_tables, toy_models, tmp_path):
    """20 slots and a backbone of 16 numbers: 16 are kept of 19, and nothing else changes."""
    from holdfast.train.experiments.load import read_recipe
    from holdfast.train.experiments.pretrain import check_pretrain_recipe, pretrain

    narrow = tmp_path / "narrow.toml"
    narrow.write_text((toy_models / "four-simplex" / "recipe.toml").read_text())
    pretrain(check_pretrain_recipe(read_recipe(str(narrow), ["backbone.width=4"])), RunFolder(tmp_path / "narrow"))
    settings = [f"scenario.replace_with=['{tmp_path}/narrow']", "train.epochs=1"]
    full = run(iam_tables, tmp_path / "full", toy_models, *settings)
    compact = run(iam_tables, tmp_path / "compact", toy_models, *settings, "evaluation.compact=true")
    assert compact["protocols"] == full["protocols"]
    checked = [check_history(*run_models(tmp_path / name)) for name in ("full", "compact")]
    assert checked[0].matrix == checked[1].matrix
    assert compact["data"]["stored"] == {"numbers": [19, 16, 16], "full": [19] * 3, "times_smaller": round(57 / 51, 3)}
    stored = FeatureStore(tmp_path / "compact" / "features").read_all()
    assert [model.gallery.shape[1] for model in stored] == [19, 16, 16]


def test_mixed_gallery(iam_tables, toy_models, tmp_path):
    """Measured by the code of the studies, once it is imported."""
    import papers.bridged_runs  # noqa: F401

    own = ["evaluation.protocols=['template', 'mixed']", "train.epochs=1"]
    metrics = run(iam_tables, tmp_path / "run", toy_models, *own)
    assert list(metrics["protocols"]) == ["template"]
    assert [len(metrics["mixed"][key]) for key in ("accuracy", "reindexed", "versions")] == [3, 3, 3]
    assert metrics["mixed"]["accuracy"][0] == metrics["mixed"]["reindexed"][0]
    assert refusal(iam_tables, toy_models, "evaluation.protocols=['mixed']").startswith("evaluation.protocols: mixed")


def test_mean_and_std_are_the_first_models_unless_given(iam_tables, toy_models):
    experiment = assemble(check_recipe(iam_tables), SharedData(models=toy_models))
    first = Encoder.from_pretrained(toy_models / "four-simplex").preprocess
    assert experiment.load_model("eight-simplex").preprocess == first
    assert Encoder.from_pretrained(toy_models / "eight-simplex").preprocess != first


def test_models_are_independent_of_the_reference_setting_where_none_is_replaced(iam_tables, toy_models, tmp_path):
    still = ["scenario.replace_at=[]", "scenario.replace_with=[]", "train.epochs=1"]
    found = [
        run(iam_tables, tmp_path / name, toy_models, *still, f"scenario.reference={name}")["protocols"]
        for name in ("loaded", "deployed")
    ]
    assert found[0] == found[1]
    assert not math.isnan(found[0]["template"]["AA"])


def test_what_the_package_does_not_measure_is_refused_before_training(iam_tables, toy_models, tmp_path, monkeypatch):
    monkeypatch.setitem(FURTHER_EVALUATIONS, "mixed", None)
    monkeypatch.delitem(FURTHER_EVALUATIONS, "mixed")
    with pytest.raises(HoldfastError, match="mixed is measured by papers/, in a clone"):
        run(iam_tables, tmp_path / "run", toy_models, "evaluation.protocols=['template', 'mixed']")
    assert not (tmp_path / "run").exists()
