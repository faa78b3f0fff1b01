import math

import pytest
import torch

from holdfast.train.geometry import angle, cosine_matrix, paired_cosine, unit, unit_of_any_length


def test_unit_rows_and_zero_row():
    z = torch.tensor([[3.0, 4.0], [0.0, 0.0]])
    assert torch.allclose(unit(z), torch.tensor([[0.6, 0.8], [0.0, 0.0]]))


def test_rows_of_any_length_are_directions():
    row = torch.tensor([1.0, -2.0, 0.5])
    z = torch.stack([row, 1e38 * row, 1e-38 * row, 0 * row, torch.tensor([1.0, math.nan, 0.0])])
    found = unit_of_any_length(z)
    assert torch.allclose(found[:3], unit(row).expand(3, 3))
    assert found[3].tolist() == [0, 0, 0]
    assert not found[4].isfinite().any()
    usual = torch.randn(100, 64, generator=torch.Generator().manual_seed(0)) * torch.logspace(-12, 12, 100)[:, None]
    assert torch.equal(unit_of_any_length(usual), unit(usual))


def test_half_precision_is_widened():
    assert unit(torch.ones(1, 3, dtype=torch.bfloat16)).dtype == torch.float32
    assert unit(torch.ones(1, 3, dtype=torch.float64)).dtype == torch.float64


def test_cosines_by_hand():
    a, b = torch.tensor([[2.0, 0.0]]), torch.tensor([[5.0, 5.0], [0.0, -1.0]])
    assert cosine_matrix(a, b).tolist()[0] == pytest.approx([math.sqrt(0.5), 0.0])
    assert paired_cosine(a, b[:1]).item() == pytest.approx(math.sqrt(0.5))


def test_autocast_does_not_reach_the_product():
    a, b = torch.randn(20, 64), torch.randn(30, 64)
    with torch.autocast("cpu", torch.bfloat16):
        inside = cosine_matrix(a, b)
    assert torch.equal(inside, cosine_matrix(a, b))


def test_angle_keeps_its_digits_where_arccos_does_not():
    tiny = 1e-6
    a = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    b = torch.tensor([[math.cos(tiny), math.sin(tiny)]], dtype=torch.float64)
    assert angle(a, b).item() == pytest.approx(tiny, rel=1e-9)
    assert angle(a, -b).item() == pytest.approx(math.pi - tiny)
