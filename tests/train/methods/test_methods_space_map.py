"""Maps between feature spaces: composition, files, and why images are mapped one by one."""

import pytest
import torch

from holdfast.core.errors import HoldfastError
from holdfast.train.geometry import unit
from holdfast.train.space_map import SpaceMap, map_features
from holdfast.train.tensor_files import write_torch


def test_by_hand():
    # Input (3, 4) becomes (0.6, 0.8). Hidden: relu(0.6 - 0.8) = 0 and relu(0.8 + 0.1) = 0.9. Out: 2 * 0.9 - 1 = 0.8.
    space_map = SpaceMap(2, 1, 2)
    space_map.load_state_dict(
        {
            "enter.weight": torch.tensor([[1.0, -1.0], [0.0, 1.0]]),
            "enter.bias": torch.tensor([0.0, 0.1]),
            "leave.weight": torch.tensor([[5.0, 2.0]]),
            "leave.bias": torch.tensor([-1.0]),
        }
    )
    assert space_map(torch.tensor([[3.0, 4.0]])).item() == pytest.approx(0.8)


def test_maps_are_applied_in_order_with_unit_vectors_in_between():
    first, second, z = SpaceMap(4, 6, 8), SpaceMap(6, 3, 8), torch.randn(5, 4)
    expected = unit(second(unit(first(unit(z)))))
    found = map_features(z, [first, second])
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(found.norm(dim=1), torch.ones(5))
    torch.testing.assert_close(map_features(3 * z, [first, second]), found)


def test_mapping_a_mean_is_not_the_mean_of_the_mapped():
    space_map, z = SpaceMap(4, 4, 32), unit(torch.randn(6, 4))
    one_by_one = unit(map_features(z, [space_map]).mean(0))
    assert not torch.allclose(map_features(z.mean(0, keepdim=True), [space_map])[0], one_by_one, atol=1e-3)
    together = torch.cat([map_features(row[None], [space_map]) for row in z])
    torch.testing.assert_close(together, map_features(z, [space_map]))


def test_a_file_gives_the_same_map_back(tmp_path):
    space_map, z = SpaceMap(4, 3, 10), torch.randn(5, 4)
    space_map.save(tmp_path / "map.safetensors")
    loaded = SpaceMap.load(tmp_path / "map.safetensors")
    assert torch.equal(loaded(z), space_map(z))
    assert not loaded.training
    assert not any(parameter.requires_grad for parameter in loaded.parameters())


def test_a_broken_or_missing_file_is_refused_in_one_line(tmp_path):
    path = tmp_path / "map.safetensors"
    with pytest.raises(HoldfastError, match="no such file"):
        SpaceMap.load(path)
    path.write_bytes(b"not tensors at all")
    with pytest.raises(HoldfastError, match="safetensors") as refused:
        SpaceMap.load(path)
    assert "\n" not in str(refused.value)


def identity(dim):
    """relu(x) - relu(-x) = x: exact with two hidden units for each entry."""
    space_map = SpaceMap(dim, dim, 2 * dim)
    eye = torch.eye(dim)
    state = {
        "enter.weight": torch.cat([eye, -eye]),
        "enter.bias": torch.zeros(2 * dim),
        "leave.weight": torch.cat([eye, -eye], dim=1),
        "leave.bias": torch.zeros(dim),
    }
    space_map.load_state_dict(state)
    return space_map


GOOD = SpaceMap(2, 2, 4).state_dict()


@pytest.mark.parametrize("length", [1, 2, 7])
def test_identities_compose_to_the_identity(length):
    z = unit(torch.randn(9, 4))
    torch.testing.assert_close(map_features(z, [identity(4) for _ in range(length)]), z)


def test_none_is_the_identity():
    z, space_map = torch.randn(5, 4), SpaceMap(4, 4, 8)
    assert map_features(z, []) is z
    assert torch.equal(map_features(z, [None, None]), z)
    assert torch.equal(map_features(z, [None, space_map, None]), map_features(z, [space_map]))


@pytest.mark.parametrize(
    "tensors",
    [
        {"something": torch.zeros(2)},
        {**GOOD, "enter.weight": torch.zeros(4)},
        {**GOOD, "leave.weight": torch.zeros(2, 9)},
        {**GOOD, "more": torch.zeros(1)},
        {name: tensor for name, tensor in GOOD.items() if name != "leave.bias"},
    ],
    ids=["other", "flat", "unfitting", "more", "less"],
)
def test_a_file_of_other_tensors_is_refused_in_one_line(tmp_path, tensors):
    path = tmp_path / "map.safetensors"
    write_torch(path, tensors)
    with pytest.raises(HoldfastError, match="not a map between feature spaces") as refused:
        SpaceMap.load(path)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)
