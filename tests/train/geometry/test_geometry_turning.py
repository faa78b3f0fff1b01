"""Turning a simplex: against dense matrices, and against what it promises."""

import pytest
import torch

from holdfast.core.errors import HoldfastError
from holdfast.train.geometry import DSimplex, Turn, TurnedSimplex, nearest_map, paired_cosine, turn_towards

NONE = torch.zeros(0, dtype=torch.long)


def directions(count: int, dim: int, seed: int = 0) -> torch.Tensor:
    """Positive rows, as of features after a ReLU: they are far from the vertices of the simplex."""
    return torch.randn(count, dim, generator=torch.Generator().manual_seed(seed)).abs()


def turned_twice(K: int, first: int, then: int) -> tuple[Turn, Turn]:
    """A turn that places the first classes, and it with a second one that places the next."""
    before = turn_towards(Turn.none(K - 1), K, torch.arange(first), directions(first, K - 1), owned=NONE)
    placed = torch.arange(first, first + then)
    after = turn_towards(before, K, placed, directions(then, K - 1, seed=1), owned=torch.arange(first))
    return before, after


@pytest.mark.parametrize(("K", "first", "then"), [(5, 3, 1), (101, 50, 30), (101, 90, 11), (300, 7, 5), (9000, 20, 6)])
def test_owned_vertices_stay_and_angles_too(K, first, then):
    before, after = turned_twice(K, first, then)
    owned = torch.arange(first)
    moved = TurnedSimplex(K, after).prototypes(owned) - TurnedSimplex(K, before).prototypes(owned)
    assert moved.norm(dim=1).max() < 1e-6
    some = torch.arange(0, K, max(1, K // 300))
    rows = TurnedSimplex(K, after)._rows(some, torch.float64)
    angles = torch.full((len(some), len(some)), -1 / (K - 1), dtype=torch.float64).fill_diagonal_(1)
    assert (rows @ rows.T - angles).abs().max() < 1e-12


def test_many_updates_do_not_add_up_to_a_drift():
    K, turn = 201, Turn.none(200)
    first = None
    for number in range(40):
        placed = torch.arange(4 * number, 4 * number + 4)
        wanted = directions(4, 200, number)
        turn = turn_towards(turn, K, placed, wanted, owned=torch.arange(4 * number))
        first = TurnedSimplex(K, turn).prototypes(placed) if first is None else first
    assert (TurnedSimplex(K, turn).prototypes(torch.arange(4)) - first).norm(dim=1).max() < 1e-6


def test_free_vertices_go_towards_their_directions():
    K, first, then = 101, 30, 20
    wanted = directions(then, K - 1, seed=1)
    before, after = turned_twice(K, first, then)
    placed = torch.arange(first, first + then)
    near = paired_cosine(TurnedSimplex(K, after).prototypes(placed), wanted).mean()
    far = paired_cosine(TurnedSimplex(K, before).prototypes(placed), wanted).mean()
    assert far < 0.05 < 0.2 < near


def test_it_is_the_procrustes_solution_in_the_complement():
    """Against the dense form: project on the complement with a pseudo-inverse, and solve there."""
    K, first, then = 12, 4, 3
    before, after = turned_twice(K, first, then)
    rows = TurnedSimplex(K, before).dense()
    owned, free = rows[:first], rows[first : first + then]
    complement = torch.eye(K - 1, dtype=torch.float64) - torch.linalg.pinv(owned) @ owned
    wanted = directions(then, K - 1, seed=1).double()
    wanted = wanted / wanted.norm(dim=1, keepdim=True)
    best = torch.linalg.svdvals((free @ complement).T @ (wanted @ complement)).sum()
    placed = TurnedSimplex(K, after).dense()[first : first + then]
    torch.testing.assert_close(((placed @ complement) * (wanted @ complement)).sum(), best)


def test_directions_that_owned_vertices_span_move_nothing():
    K = 20
    rows = DSimplex(K).dense()
    turn = turn_towards(Turn.none(K - 1), K, torch.tensor([9]), rows[:1] - 2 * rows[3:4], owned=torch.arange(9))
    torch.testing.assert_close(TurnedSimplex(K, turn).dense(), rows)


def test_vertices_that_are_where_they_should_be_stay_as_all_others():
    K = 30
    rows = DSimplex(K).dense()
    turn = turn_towards(Turn.none(K - 1), K, torch.arange(5, 8), 3 * rows[5:8], owned=torch.arange(5))
    torch.testing.assert_close(TurnedSimplex(K, turn).dense(), rows)


def test_golden_numbers():
    """What these calls gave when they were written: a change of arithmetic is noticed."""
    _, after = turned_twice(6, 2, 2)
    expected = [
        [0.0302948, -0.0946878, 0.8781241, -0.1379000, 0.4472116],
        [-0.2040187, -0.4579836, -0.5676929, 0.1588949, 0.6333281],
        [-0.2417907, -0.5625455, 0.1350258, 0.2425180, -0.7402924],
    ]
    found = TurnedSimplex(6, after).prototypes(torch.tensor([0, 2, 5]))
    torch.testing.assert_close(found, torch.tensor(expected), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("scale", ["unit", "frobenius"])
@pytest.mark.parametrize("K", [5, 60])
def test_logits_and_gradients_are_those_of_the_dense_matrix(K, scale):
    _, turn = turned_twice(K, 2, 2)
    simplex = TurnedSimplex(K, turn, scale=scale)
    z = torch.randn(7, K - 1, dtype=torch.float64, requires_grad=True)
    upstream = torch.randn(7, K, dtype=torch.float64)
    logits = simplex.logits(z)
    (gradient,) = torch.autograd.grad(logits, z, upstream)
    assert (logits - z @ simplex.dense().T).abs().max() < 1e-12
    assert (gradient - upstream @ simplex.dense()).abs().max() < 1e-12
    assert (simplex.combine(upstream) - upstream @ simplex.dense()).abs().max() < 1e-12
    assert torch.autograd.gradcheck(simplex.logits, (z,))


def test_a_simplex_that_was_not_turned_gives_the_same_bits():
    z = torch.randn(4, 11)
    simplex, turned = DSimplex(12), TurnedSimplex(12, Turn.none(11))
    assert torch.equal(simplex.logits(z), turned.logits(z))
    assert torch.equal(simplex.combine(torch.ones(2, 12)), turned.combine(torch.ones(2, 12)))


def test_undo_is_the_inverse_and_then_is_the_product():
    before, after = turned_twice(40, 10, 8)
    z = torch.randn(5, 39, dtype=torch.float64)
    torch.testing.assert_close(after.undo(after.apply(z)), z)
    torch.testing.assert_close(before.then(after).apply(z), after.apply(before.apply(z)))
    assert before.then(Turn.none(39)) is before
    assert len(before.digest()) == 16
    assert before.digest() != after.digest()


def test_the_nearest_map_is_the_identity_where_nothing_is_asked():
    rows = torch.zeros(1, 4, dtype=torch.float64)
    rows[0, 0] = 1
    found = nearest_map(rows, torch.eye(4, dtype=torch.float64)[1:2])
    torch.testing.assert_close(rows @ found, torch.eye(4, dtype=torch.float64)[1:2])
    torch.testing.assert_close(found[2:, 2:], torch.eye(2, dtype=torch.float64))


def test_refusals():
    with pytest.raises(HoldfastError, match="vertex 2 has an owner"):
        turn_towards(Turn.none(4), 5, torch.tensor([2]), directions(1, 4), owned=torch.tensor([1, 2]))
    with pytest.raises(HoldfastError, match="1 vertices to place, but 2 directions"):
        turn_towards(Turn.none(4), 5, torch.tensor([2]), directions(2, 4), owned=NONE)
    with pytest.raises(HoldfastError, match="a map of 4 dimensions cannot turn a simplex of 9 vertices, which has 8"):
        TurnedSimplex(9, Turn.none(4))
