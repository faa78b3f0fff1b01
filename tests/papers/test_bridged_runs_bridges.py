"""Compatibility matrices and mixed galleries with bridged queries, against plain loops and known answers."""

import numpy as np
import pytest
import torch

from holdfast.core.errors import HoldfastError
from holdfast.train.encoders import ModelFeatures
from holdfast.train.evaluation import compatibility_matrix
from papers.bridged_runs.mixed_gallery import arrivals, arrivals_by_class, mixed_gallery
from papers.bridged_runs.run_bridges import fit_run_bridges

CLASSES, QUERIES, ITEMS = 6, 60, 240
QUERY_Y, GALLERY_Y = np.arange(QUERIES) % CLASSES, np.arange(ITEMS) % CLASSES


def unit(z):
    return (z / np.linalg.norm(z, axis=1, keepdims=True)).astype(np.float32)


def turned_models(*dims, noise=1.0, seed=0):
    """Models that see the same things from turned points of view, so that a rotation carries one into the other."""
    random = np.random.default_rng(seed)
    centres = random.standard_normal((CLASSES, 8))
    seen = [centres[y] + noise * random.standard_normal((len(y), 8)) for y in (QUERY_Y, GALLERY_Y)]
    models = []
    for dim in dims:
        turn = np.linalg.qr(random.standard_normal((max(dim, 8), max(dim, 8))))[0][:8, :dim]
        models.append(ModelFeatures(*(unit(part @ turn) for part in seen)))
    return models


@pytest.mark.parametrize("protocol", ["template", "instance"])
def test_a_bridge_restores_what_a_turn_of_the_space_lost(protocol):
    models = turned_models(8, 8, 12)
    fitted = fit_run_bridges([model.gallery for model in models], kind="rotation", pairs=100)
    found = compatibility_matrix(models, QUERY_Y, GALLERY_Y, protocol=protocol, query_maps=fitted.maps)
    plain = compatibility_matrix(models, QUERY_Y, GALLERY_Y, protocol=protocol)
    assert np.array_equal(found.diagonal(), plain.diagonal())
    assert np.isnan(plain[2, 0])
    assert found[1, 0] == found[2, 0] == found[0, 0] > plain[1, 0] + 0.2


def test_every_cell_below_the_diagonal_is_bridged():
    models = turned_models(8, 8, 8)
    used = []

    def of(t, k):
        def carry(queries):
            used.append((t, k))
            return queries.flip(1)

        return carry

    maps = {(t, k): of(t, k) for t in range(3) for k in range(t)}
    found = compatibility_matrix(models, QUERY_Y, GALLERY_Y, protocol="instance", query_maps=maps)
    assert used == [(1, 0), (2, 0), (2, 1)]
    for t, k in used:
        first = (models[t].query[:, ::-1] @ models[k].gallery.T).argmax(1)
        assert found[t, k] == pytest.approx((GALLERY_Y[first] == QUERY_Y).mean())


def test_compact_features_are_bridged_as_stored():
    models = turned_models(8, 8)
    bases = [np.linalg.qr(np.random.default_rng(i).standard_normal((20, 8)))[0].astype(np.float32) for i in (1, 2)]
    compact = [ModelFeatures(*model[:2], basis) for model, basis in zip(models, bases)]
    fitted = fit_run_bridges([m.gallery for m in compact], bases, kind="rotation", pairs=100)
    full = compatibility_matrix(models, QUERY_Y, GALLERY_Y, query_maps=fitted.maps)
    assert np.array_equal(compatibility_matrix(compact, QUERY_Y, GALLERY_Y, query_maps=fitted.maps), full, True)


def test_queries_as_they_are_compete_in_their_own_basis():
    """Two bases of one space: "none" is perfect, but only if the change of basis is made before it is measured."""
    full = unit(np.random.default_rng(5).standard_normal((ITEMS, 8)))
    bases = [np.linalg.qr(np.random.default_rng(i).standard_normal((8, 8)))[0].astype(np.float32) for i in (1, 2)]
    fitted = fit_run_bridges([full @ basis for basis in bases], bases, pairs=200)
    assert fitted.kind == "none"
    assert fitted.candidates[0]["value"] == 1
    assert fitted.maps == {}


def test_one_kind_for_the_whole_run():
    """Between models 1 and 2 nothing is needed; the third is turned. The mean decides, not each cell."""
    a, b = turned_models(8, 8)
    fitted = fit_run_bridges([a.gallery, a.gallery, b.gallery], pairs=200)
    assert fitted.kind == "rotation"
    assert set(fitted.maps) == set(fitted.scales) == {(1, 0), (2, 0), (2, 1)}
    values = [one["value"] for one in fitted.candidates[1:]]
    assert values == sorted(values, reverse=True)
    assert {one["kind"] for one in fitted.candidates} >= {"none", "rotation", "affine", "local"}
    assert fit_run_bridges([a.gallery] * 3, pairs=200).kind == "none"


def test_the_sample_is_seeded_and_bounded():
    models = turned_models(8, 8, noise=1.5)
    noisy = unit(models[0].gallery + 0.2 * np.random.default_rng(3).standard_normal(models[0].gallery.shape))
    galleries = [noisy, models[1].gallery]
    one, again, other = (fit_run_bridges(galleries, kind="rotation", pairs=60, seed=s) for s in (0, 0, 1))
    queries = torch.from_numpy(models[1].query)
    assert torch.equal(one.maps[1, 0](queries), again.maps[1, 0](queries))
    assert (one.maps[1, 0](queries) - other.maps[1, 0](queries)).abs().max() > 0.01
    assert fit_run_bridges(galleries, kind="rotation", pairs=10_000).pairs == ITEMS
    with pytest.raises(HoldfastError, match="9 pairs are too few"):
        fit_run_bridges(galleries, pairs=9)
    with pytest.raises(HoldfastError, match="the gallery's 5 images are too few"):
        fit_run_bridges([gallery[:5] for gallery in galleries])
    with pytest.raises(HoldfastError, match="kind of bridge"):
        fit_run_bridges(galleries, kind="tunnel")


def shown_by_loops(models, arrival, maps, scales):
    """The ten best of all versions for the last model's queries, with a matrix of all merged scores."""
    t = len(models) - 1
    scores = np.empty((QUERIES, ITEMS), dtype=np.float32)
    for k, model in enumerate(models):
        queries = torch.from_numpy(models[t].query)
        carried = unit(maps[t, k](queries).numpy()) if (t, k) in maps else queries.numpy()
        cosines = carried @ model.gallery[arrival == k].T
        scores[:, arrival == k] = scales[t, k](torch.from_numpy(cosines)).numpy() if (t, k) in scales else cosines
    return np.argsort(-scores, axis=1, kind="stable")[:, :10]


@pytest.mark.parametrize("by_class", [False, True])
@pytest.mark.parametrize("scaled", [False, True])
def test_exposure_against_loops(by_class, scaled):
    models = turned_models(8, 8, 8)
    fitted = fit_run_bridges([m.gallery for m in models], kind="affine", pairs=100)
    arrival = arrivals_by_class(GALLERY_Y, 3) if by_class else arrivals(GALLERY_Y, 3, 0)
    scales = fitted.scales if scaled else {}
    found = mixed_gallery(models, QUERY_Y, GALLERY_Y, arrival=arrival, query_maps=fitted.maps, scales=scales or None)
    shown = shown_by_loops(models, arrival, fitted.maps, scales)
    fair = np.argsort(-(models[2].query @ models[2].gallery.T), axis=1, kind="stable")[:, :10]
    assert found["accuracy"][2] == pytest.approx((GALLERY_Y[shown[:, 0]] == QUERY_Y).mean())
    for k, version in enumerate(found["versions"]):
        for places in (1, 10):
            ratio = (arrival[shown[:, :places]] == k).mean() / (arrival[fair[:, :places]] == k).mean()
            assert version["exposure"][str(places)] == pytest.approx(ratio)


def test_bridges_and_scaled_scores_bring_old_items_back():
    """The old model stores its items in a cone: a ninth number, the same for all, makes all its scores high."""
    new, turned = (
        ModelFeatures(*(unit(np.pad(part, ((0, 0), (0, 1)), constant_values=ninth)) for part in model[:2]))
        for model, ninth in zip(turned_models(8, 8), (0.0, 1.0))
    )
    models = [turned, new]
    fitted = fit_run_bridges([m.gallery for m in models], kind="affine", options={"ridge": 0.001}, pairs=200)
    ways = {
        "plain": {},
        "bridged": {"query_maps": fitted.maps},
        "scaled": {"query_maps": fitted.maps, "scales": fitted.scales},
    }
    found = {name: mixed_gallery(models, QUERY_Y, GALLERY_Y, **way) for name, way in ways.items()}
    exposure = {name: one["versions"][0]["exposure"] for name, one in found.items()}
    assert exposure["plain"]["10"] < 0.2
    assert exposure["bridged"]["10"] > 1.5
    assert 0.9 < exposure["scaled"]["10"] < 1.1
    assert 0.8 < exposure["scaled"]["1"] < 1.25
    assert found["scaled"]["accuracy"][-1] == found["scaled"]["reindexed"][-1]
    offsets = [found[name]["versions"][0]["score_offset_others"] for name in ("bridged", "scaled")]
    assert offsets[0] > 0.3
    assert offsets[0] == offsets[1]  # of cosines, before any scale
