"""The quarterly study on made-up vectors, from tries to records, and its measures beside the obvious versions."""

import json
import statistics

import numpy as np
import pytest
import torch

from holdfast import build_backbone
from holdfast.core.storage import read_json
from holdfast.metrics import mean_precision, places
from holdfast.metrics.exposure import StoredItems, search_mixed
from holdfast.train.geometry import unit
from holdfast.train.methods import Batch
from papers.quarters import study_data, trainees, trainings
from papers.quarters.cosine_distillation import CosineDistillation
from papers.quarters.execute import Results, StudyRun, execute
from papers.quarters.measure import Threshold, blended, grown_gallery, one_version, ranking, rescored, scores
from papers.quarters.replacement import Turned, execute_replacement, replacement_runs
from papers.quarters.settings_search import FOLDER, chosen_settings, read_tries, search, try_score
from papers.quarters.shares import Records
from papers.quarters.strategies import STRATEGIES
from papers.quarters.study_data import NETWORK, NETWORK_REPLACEMENT, REPLACEMENT, UNSEEN, StudyData
from papers.quarters.trainees import HEAD
from papers.quarters.workers import LITE2_FEATURES, Workplace, results_of

WIDTH, CLASSES, EACH = 12, 17, 42
BRIDGED = tuple(one.name for one in STRATEGIES if one.search in ("bridge", "blend") and one.training != trainees.PLAIN)


class MadeUp(Workplace):
    """Data that the tests make up, by study."""

    def data(self, study):
        return self.made.get(study, self.made["made up"])


def place_of(top, made):
    place = MadeUp(top, top / "results", top / "models")
    object.__setattr__(place, "made", {"made up": made} if isinstance(made, StudyData) else made)
    return place


@pytest.fixture(scope="module")
def data():
    """Clusters: eleven trained classes, two for validation, four unseen."""
    random = np.random.default_rng(0)
    centres = random.normal(size=(CLASSES, WIDTH))
    labels = np.repeat(np.arange(CLASSES), EACH)
    items = (centres[labels] + random.normal(size=(len(labels), WIDTH))).astype(np.float32)
    rows = np.arange(len(labels))
    trained, test = labels < 11, rows % EACH >= 22
    return StudyData(
        "made up", items, np.array([f"{label:02d}" for label in labels]), training=rows[trained & ~test],
        known=rows[trained & test], unseen=rows[labels >= 13], validation=rows[(labels >= 11) & (labels < 13)],
        sizes=(3, 2, 2, 2, 2), seconds_per_item=0.03,
    )  # fmt: skip


@pytest.fixture(scope="module")
def few_tries():
    """Two tries of plain, and one setting for the others, with few epochs."""
    patch = pytest.MonkeyPatch()
    first = {name: tries[:1] for name, tries in HEAD.tries.items()}
    first[trainees.PLAIN] = HEAD.tries[trainees.PLAIN][:2]
    known = dict(HEAD.tries)
    HEAD.tries.update(first)
    patch.setattr(trainees, "HEAD_FIT", trainees.FitOptions(epochs=2, batch_size=64, lr=0.05, schedule="cosine"))
    patch.setattr(trainees, "MAP_WIDTH", 8)
    yield first
    patch.undo()
    HEAD.tries.update(known)


@pytest.fixture(scope="module")
def study(data, few_tries, tmp_path_factory):
    """All strategies at one seed; bridges are fitted for plain alone, because they take most of the time."""
    place = place_of(tmp_path_factory.mktemp("quarters"), data)
    search(place, "made up", [one.training for one in STRATEGIES], say=lambda text: None)
    runs = [StudyRun("made up", strategy, 0) for strategy in STRATEGIES if strategy.name not in BRIDGED]
    execute(runs, place, say=lambda text: None)
    return Results(place.results), runs, place


def test_every_strategy_has_a_record(study):
    results, runs, _ = study
    assert results.missing(runs) == []
    for run in runs:
        record = json.loads((results.root / run.path).read_text())
        assert record["strategy"] == run.strategy.name
        assert record["environment"]["commit"]
        assert len(record["seconds"]["training"]) == 5
        table = record["tables"][UNSEEN]
        assert len(table["own"]) == 5
        assert len(table["cells"]) == (0 if run.strategy.search == "never" else 10)
        assert len(table["mixed"]["exposure@10"]) == 5
        assert all("bridge" in cell for cell in table["cells"]) == (run.strategy.search in ("bridge", "never"))


def test_strategies_differ_only_where_they_should(study):
    results, runs, _ = study
    tables = {run.strategy.name: results.record(run)["tables"][UNSEEN] for run in runs}
    assert tables["plain"]["own"] == tables["plain-bridge"]["own"] == tables["plain-reembedded"]["own"]
    assert tables["never"]["own"][4] == tables["plain"]["own"][0]
    assert tables["distillation"]["own"] == tables["fan"]["own"]  # the same networks, searched through maps
    assert tables["distillation"]["cells"] != tables["fan"]["cells"]
    assert tables["plain"]["own"] != tables["ours"]["own"]
    by_pair = {(cell["queries"], cell["gallery"]): cell for cell in tables["plain-two-encoders"]["cells"]}
    for (_, gallery), cell in by_pair.items():
        assert cell["mAP"] == tables["plain"]["own"][gallery - 1]["mAP"]
    for cell in tables["plain-reembedded"]["cells"]:
        assert cell["mAP"] == tables["plain"]["own"][cell["queries"] - 1]["mAP"]


def test_two_stage_search_and_blend_use_both_models(study):
    results, runs, _ = study
    tables = {run.strategy.name: results.record(run)["tables"][UNSEEN] for run in runs}
    cells = {name: {(c["queries"], c["gallery"]): c for c in tables[name]["cells"]} for name in tables}
    for pair, cell in cells["plain-two-stage"].items():
        assert cell != cells["plain-reembedded"][pair]
        assert "bridge" not in cell
    assert cells["plain-two-stage"] != cells["plain-two-encoders"]
    assert cells["plain-blend"] != cells["plain-bridge"]
    assert len(tables["plain-two-stage"]["mixed"]["exposure@10"]) == 5
    assert "threshold" not in tables["plain-blend"]


def test_the_simplex_was_turned(study):
    """Version 5 records five turns; the paper's simplex none."""
    _, _, place = study
    turned, paper = (
        read_json(place.out / "made up" / f"{name}-s0" / "models" / "05" / "config.json") for name in ("turned", "hoc")
    )
    assert len(turned["info"]["slots"]["turns"]) == 5
    assert turned["layer"] == "identity"
    assert turned["dim"] == WIDTH
    assert "turns" not in paper["info"]["slots"]
    assert paper["dim"] == 1023


def test_a_second_run_trains_nothing(study, data, monkeypatch):
    results, runs, place = study
    monkeypatch.setattr(trainings, "train_scenario", lambda *words, **options: pytest.fail("trained again"))
    search(place, "made up", [one.training for one in STRATEGIES], say=pytest.fail)
    execute(results.missing(runs), place, say=pytest.fail)


def test_a_record_of_other_settings_is_missing(study, tmp_path):
    results, runs, _ = study
    other = Results(tmp_path)
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / "tries.json").write_text((results.root / FOLDER / "tries.json").read_text())
    record = json.loads((results.root / runs[2].path).read_text())
    (tmp_path / runs[2].path).parent.mkdir(parents=True)
    (tmp_path / runs[2].path).write_text(json.dumps(record))
    assert other.record(runs[2])
    record["settings"]["lr"] = 9
    (tmp_path / runs[2].path).write_text(json.dumps(record))
    assert other.record(runs[2]) is None


def test_the_best_try_is_chosen(study, few_tries):
    results, _, _ = study
    tries = read_tries(results.root / FOLDER, HEAD)
    assert len(tries) == 2
    best = max(tries, key=lambda one: one["score"])
    assert chosen_settings(results.root / FOLDER, HEAD, trainees.PLAIN).to_json() == best["settings"]
    assert best["score"] == best["mAP"][4][4]


def test_the_network_is_replaced(study, data):
    """The new network gives the same vectors in another basis, so that a rotation brings them back."""
    results, _, place = study
    basis = np.linalg.qr(np.random.default_rng(1).normal(size=(WIDTH, WIDTH)))[0]
    other = StudyData(**{**vars(data), "items": (data.items @ basis).astype(np.float32)})
    runs = [
        run
        for run in replacement_runs([0])
        if run.strategy.name in ("plain-reembedded", "plain", "ours", "hoc", "turned", "turned-two-stage")
    ]
    there = place_of(place.features, {"made up": data, LITE2_FEATURES: other})
    execute_replacement(runs, there, say=lambda text: None)
    assert results.missing(runs) == []
    records = Records(results.root, REPLACEMENT, [0])
    assert records.kept("ours", UNSEEN, 1, "mAP")[0] > 0.8
    assert records.kept("plain", UNSEEN, 1, "mAP")[0] < 0.8
    assert len(records.table("ours", 0, UNSEEN)["mixed"]["exposure@10"]) == 2
    # The new layer begins as the map back, so a turned simplex needs no other map; a random projection has none.
    assert records.kept("turned", UNSEEN, 1, "mAP")[0] > 0.8 > records.kept("hoc", UNSEEN, 1, "mAP")[0]
    assert records.kept("turned-two-stage", UNSEEN, 1, "mAP")[0] > 0.8


@pytest.fixture(scope="module")
def small_network():
    """The studies of whole networks with a small network instead of EfficientNet-lite, and few epochs."""
    patch = pytest.MonkeyPatch()
    for module in (study_data, trainees):
        patch.setattr(module, "SIDE", 10)
        patch.setattr(module, "CROP", 8)
    width = build_backbone("small_resnet").feature_dim
    patch.setattr(trainees, "LITE0", "small_resnet")
    patch.setattr(trainees, "NETWORK_WIDTH", width)
    patch.setattr("papers.quarters.replacement.build_backbone", lambda name: _linear(width))
    patch.setattr(trainees, "NETWORK_EPOCHS", 1)
    known = dict(trainees.NETWORK.tries)
    trainees.NETWORK.tries.update({name: tries[:1] for name, tries in known.items()})
    yield
    patch.undo()
    trainees.NETWORK.tries.update(known)


def test_measures_of_two_models_beside_the_obvious_versions():
    random = np.random.default_rng(3)
    queries, old_queries, gallery, old_gallery = (
        unit(torch.from_numpy(random.normal(size=(count, 6)).astype(np.float32))) for count in (5, 5, 30, 30)
    )
    first = ranking(one_version(old_gallery, old_queries))
    for query, line in enumerate(rescored(first, 10, queries, gallery).tolist()):
        candidates, rest = first[query, :10].tolist(), first[query, 10:].tolist()
        best_first = sorted(candidates, key=lambda item, query=query: -float(queries[query] @ gallery[item]))
        assert line == best_first + rest
    mixed = blended(one_version(old_gallery, old_queries), one_version(old_gallery, queries), 0.3)
    obvious = 0.7 * old_queries @ old_gallery.T + 0.3 * queries @ old_gallery.T
    assert mixed[:, 0].tolist() == obvious.argmax(1).tolist()


def _linear(width):
    """A replacement whose vectors keep the colours without any training."""
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(8 * 8 * 3, width))
    network.feature_dim = width
    return network


def test_a_whole_network_is_trained_and_replaced(data, small_network, tmp_path):
    random = np.random.default_rng(0)
    colours = random.integers(0, 200, size=(CLASSES, 1, 1, 3))
    codes = np.array([int(label) for label in data.labels])
    pixels = (colours[codes] + random.integers(0, 50, size=(len(codes), 10, 10, 3))).astype(np.uint8)
    place = place_of(tmp_path, StudyData(**{**vars(data), "name": NETWORK, "items": pixels}))
    names = ("raw", "plain-reembedded", "plain", "ours", "hoc", "turned", "turned-two-stage")
    wanted = [one for one in STRATEGIES if one.name in names]
    search(place, NETWORK, [one.training for one in wanted], say=pytest.fail)  # one try each, so none is trained
    execute([StudyRun(NETWORK, strategy, 0) for strategy in wanted], place, say=lambda text: None)
    execute_replacement(
        [run for run in replacement_runs([0], NETWORK_REPLACEMENT) if run.strategy in wanted],
        place,
        say=lambda text: None,
    )
    records = Records(place.results, NETWORK, [0])
    assert records.own("plain", UNSEEN, "mAP")[0] > 0.5  # four unseen colours; by chance 0.25
    assert records.by_seed["plain"][0]["seconds"]["network_per_million"] > 0
    after = Records(place.results, NETWORK_REPLACEMENT, [0])
    assert after.kept("ours", UNSEEN, 1, "mAP") > after.kept("plain", UNSEEN, 1, "mAP")
    assert after.by_seed["ours"][0]["study"] == NETWORK_REPLACEMENT


def test_a_turned_network_begins_as_a_rotation():
    network = torch.nn.Linear(6, 6)
    weight = torch.linalg.qr(torch.randn(6, 6, generator=torch.Generator().manual_seed(0)))[0]
    rows = torch.randn(3, 6, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(Turned(network, weight, 6)(rows), network(rows) @ weight)


def _twice(place, job):
    return 2 * job


def test_jobs_can_run_in_several_processes(tmp_path):
    place = Workplace(tmp_path, tmp_path, tmp_path)
    assert list(results_of(_twice, [1, 2, 3], place, 1)) == [2, 4, 6]
    assert sorted(results_of(_twice, [1, 2, 3], place, 2)) == [2, 4, 6]


def test_the_score_of_a_try():
    matrix = [[0.2], [0.3, 0.7]]
    assert try_score(trainees.PLAIN, matrix) == 0.7
    assert try_score(trainees.CVS, matrix) == pytest.approx(0.4)


def test_shares_are_those_of_the_records(study):
    results, _, _ = study
    records = Records(results.root, "made up", [0])
    table, ceiling = (records.table(name, 0, UNSEEN) for name in ("plain", "plain-reembedded"))
    at_lag_three = [
        cell["mAP"] / ceiling["own"][cell["queries"] - 1]["mAP"]
        for cell in table["cells"]
        if (cell["queries"], cell["gallery"]) in ((4, 1), (5, 2))
    ]
    assert records.kept("plain", UNSEEN, 3, "mAP") == [pytest.approx(statistics.fmean(at_lag_three))]
    assert records.kept("plain-reembedded", UNSEEN, 2, "recall@1") == [1]
    never = records.kept("never", UNSEEN, 4, "mAP")
    assert never == [pytest.approx(ceiling["own"][0]["mAP"] / ceiling["own"][4]["mAP"])]
    assert records.kept("never", UNSEEN, 4, "mAP", of_same=True) == [1]


def test_scores_are_those_of_the_product():
    random = torch.Generator().manual_seed(0)
    queries, gallery = (unit(torch.randn(count, 6, generator=random)) for count in (30, 50))
    codes = torch.arange(30).numpy() % 5, torch.arange(50).numpy() % 5
    found = scores(ranking(one_version(gallery, queries)), *codes)
    exact = mean_precision(places((queries @ gallery.T).numpy(), codes[0][:, None] == codes[1]))
    assert found["mAP"] == pytest.approx(exact.mean())
    assert found["recall@1"] <= found["recall@10"]


def test_a_mixed_ranking_is_that_of_the_product():
    random = torch.Generator().manual_seed(0)
    queries, gallery = (unit(torch.randn(count, 6, generator=random)) for count in (30, 50))
    even, odd = np.arange(0, 50, 2), np.arange(1, 50, 2)
    stored = [
        StoredItems(even, gallery[even], queries, lambda cosine: 0.1 + 2 * cosine),
        StoredItems(odd, gallery[odd], -queries),
    ]
    assert np.array_equal(ranking(stored)[:, :10], search_mixed(stored, 10).rows)


def test_a_threshold_lets_one_per_cent_of_the_others_pass():
    random = torch.Generator().manual_seed(0)
    queries, gallery = (unit(torch.randn(count, 6, generator=random)) for count in (100, 200))
    threshold = Threshold(queries, gallery, np.arange(100) % 4, np.arange(200) % 4)
    assert threshold.passed(queries, gallery)["other"] == pytest.approx(0.01, abs=1e-4)
    assert threshold.passed(-queries, gallery)["other"] < 0.05


def test_a_gallery_grows_by_equal_parts():
    assert list(np.bincount(grown_gallery(50, 5, seed=0))) == [10] * 5
    assert (grown_gallery(50, 5, seed=0) != grown_gallery(50, 5, seed=1)).any()


def test_distillation_compares_with_the_rows_of_the_previous_version():
    method = CosineDistillation(features_weight=3.0, logits_weight=2.0)
    method.classifier.grow(3, 4)
    z, z_old = (torch.randn(6, 4, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
    labels = torch.tensor([0, 1, 2, 0, 1, 2])
    batch = Batch(labels, 0)
    progress = None
    assert set(method.loss(z, batch, progress=progress)) == {"ce"}
    method.old_rows = method.classifier.weight.detach()[:2].clone()
    terms = method.loss(z, batch, z_old=z_old, progress=progress)
    cosines = (unit(z) * unit(z_old)).sum(1)
    assert terms["features"].item() == pytest.approx(3 * (1 - cosines).mean().item(), rel=1e-5)
    soft = [torch.softmax(16 * unit(one) @ unit(method.old_rows).T / method.temperature, dim=1) for one in (z_old, z)]
    crossed = -(soft[0] * soft[1].log()).sum(1).mean()
    assert terms["logits"].item() == pytest.approx(2 * crossed.item(), rel=1e-4)
