"""On a GPU: the replayed step of a map on features is the eager one."""

import copy

import pytest
import torch

from holdfast.train.engine.executors import on_stream_to_capture
from holdfast.train.engine.feature_phase import FeatureStep, ReplayedFeatureStep
from holdfast.train.losses import feature_distillation
from holdfast.train.methods import FeaturePhase
from holdfast.train.space_map import SpaceMap

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def trained(space_map, replayed):
    z_old, z = torch.randn(2, 300, 16, generator=torch.Generator().manual_seed(0)).cuda()
    labels = torch.zeros(300, dtype=torch.long, device="cuda")
    loss = lambda old, new, _: {"map": feature_distillation(space_map(old), new)}  # noqa: E731
    step = FeatureStep(FeaturePhase(list(space_map.parameters()), loss, 5, 64, 1e-3), z_old, z, labels)
    run = ReplayedFeatureStep(step, 64) if replayed else step
    generator = torch.Generator("cuda").manual_seed(1)
    with on_stream_to_capture(z.device):
        for _ in range(5):
            for some in torch.randperm(300, generator=generator, device="cuda").split(64):
                run(some)
    torch.cuda.synchronize()
    return torch.cat([p.detach().flatten() for p in space_map.parameters()]), step.worst


def test_a_replayed_map_is_the_eager_one():
    torch.manual_seed(0)
    eager = SpaceMap(16, 16, 32).cuda().train()
    other = copy.deepcopy(eager)
    (wanted, worst), (found, other_worst) = trained(eager, False), trained(other, True)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(other_worst, worst)
