"""On a GPU: every executor does the same, and neighbours do not disturb each other."""

import threading

import numpy as np
import pytest
import torch

from holdfast.backbones import Encoder, Preprocess, build_backbone
from holdfast.data import ImageSet
from holdfast.data.device import DeviceImages
from holdfast.engine import FitOptions
from holdfast.engine.executors import make_executor
from holdfast.engine.fit import prepare_step
from holdfast.methods import METHODS
from holdfast.scenarios import cl2r

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.fixture(autouse=True)
def deterministic(monkeypatch):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = False
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture(scope="module")
def images():
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (600, 32, 32, 3), dtype=np.uint8)
    return DeviceImages(ImageSet(pixels, np.repeat(np.arange(12), 50), tuple("abcdefghijkl"), "random"), "cuda")


def make_step(images, name, precision="fp32", seed=0):
    torch.manual_seed(seed)
    scenario = cl2r(images.labels.cpu().numpy(), tuple("abcdefghijkl"), initial=6, tasks=2)
    preprocess = Preprocess(size=32, mean=(0.5,) * 3, std=(0.25,) * 3)
    method = METHODS[name](**({"slots": 12} if name.startswith("simplex") else {}))
    new, old = (Encoder(build_backbone("resnet32"), method.feature_dim(64), preprocess=preprocess) for _ in range(2))
    method.begin(scenario.tasks[0], new.dim)
    if hasattr(method, "centres"):
        method.centres = torch.randn(6, new.dim, device="cuda")
    for kept in ("bounds", "radii"):
        if hasattr(method, kept):
            setattr(method, kept, torch.rand(6, device="cuda"))
    options = FitOptions(epochs=20, batch_size=64, lr=0.01, precision=precision, seed=seed)
    step, _ = prepare_step(new, method, scenario.tasks[1], images, old=old, options=options)
    return step


def after(step, executor, steps=12):
    run = make_executor(executor, step)
    for _ in range(steps):
        run()
    torch.cuda.synchronize()
    return {name: value.clone() for name, value in step.encoder.state_dict().items()} | {
        "sums": step.tally.sums.clone()
    }


def same(a, b):
    return all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("name", METHODS)
def test_a_graph_is_the_eager_step_bit_for_bit(images, name, precision):
    eager = after(make_step(images, name, precision), "eager")
    assert same(eager, after(make_step(images, name, precision), "eager"))
    assert same(eager, after(make_step(images, name, precision), "graph"))


def test_neighbours_do_not_disturb_each_other(images):
    """Eight runs at once, each on its own stream, end where each ends alone."""
    names = [*METHODS]
    alone = [after(make_step(images, name, "bf16", seed), "graph", 40) for seed, name in enumerate(names)]
    steps = [make_step(images, name, "bf16", seed) for seed, name in enumerate(names)]
    found: list = [None] * len(steps)

    def work(i):
        with torch.cuda.stream(torch.cuda.Stream()):
            run = make_executor("graph", steps[i])
            for _ in range(40):
                run()
            torch.cuda.current_stream().synchronize()
            found[i] = dict(steps[i].encoder.state_dict()) | {"sums": steps[i].tally.sums}

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(steps))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name, one, other in zip(names, alone, found):
        assert other is not None, name
        assert same(one, other), name
