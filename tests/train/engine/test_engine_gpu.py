"""On a GPU: every executor does the same, and neighbours do not disturb each other."""

import threading
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch

import papers.networks  # noqa: F401  SENet-18 and RegNetY-400MF
from holdfast.train.data import ImageSet
from holdfast.train.data.device_images import DeviceImages
from holdfast.train.encoders import Encoder, Preprocess, build_backbone
from holdfast.train.engine import FitOptions, KeptFeatures, buffer_features
from holdfast.train.engine.executors import make_executor
from holdfast.train.engine.fit import prepare_step
from holdfast.train.methods import METHODS
from holdfast.train.randomness import GENERATOR_LOCK
from holdfast.train.scenarios import cl2r
from papers.kernels import fused_network, why_not_fused

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


def make_method(name):
    if name == "lce_maps":
        return METHODS["lce"](transformations=True)
    return METHODS[name](**({"slots": 12} if name.startswith("simplex") else {}))


def make_step(images, name, precision="fp32", seed=0, backbone="resnet32", **crop):
    torch.manual_seed(seed)
    scenario = cl2r(images.labels.cpu().numpy(), tuple("abcdefghijkl"), initial=6, tasks=2)
    preprocess = Preprocess(size=crop.get("resized_crop", 32), mean=(0.5,) * 3, std=(0.25,) * 3)
    method = make_method(name)
    networks = [build_backbone(backbone) for _ in range(2)]
    new, old = (Encoder(one, method.feature_dim(one.feature_dim), preprocess=preprocess) for one in networks)
    method.begin(scenario.tasks[0], new.dim)
    if hasattr(method, "centres"):
        method.centres = torch.randn(6, new.dim, device="cuda")
    for kept in ("bounds", "radii"):
        if hasattr(method, kept):
            setattr(method, kept, torch.rand(6, device="cuda"))
    options = FitOptions(epochs=20, batch_size=64, lr=0.01, precision=precision, seed=seed, **crop)
    second = scenario.tasks[1]
    kept = KeptFeatures(second, images, [buffer_features(old.to("cuda"), images, second.buffer_indices)])
    step, _ = prepare_step(new, method, second, images, old=old, kept=kept, options=options)
    return step


def after(step, executor, steps=12):
    run = make_executor(executor, step)
    for _ in range(steps):
        run()
    torch.cuda.synchronize()
    return {name: value.clone() for name, value in step.encoder.state_dict().items()} | {
        "sums": step.loss_sums.sums.clone()
    }


def same(a, b):
    return all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("name", [*METHODS, "lce_maps"])
def test_a_graph_is_the_eager_step_bit_for_bit(images, name, precision):
    eager = after(make_step(images, name, precision), "eager")
    assert same(eager, after(make_step(images, name, precision), "eager"))
    assert same(eager, after(make_step(images, name, precision), "graph"))


@pytest.mark.parametrize(
    ("name", "backbone"),
    [
        *product(METHODS, ["resnet32", "regnety_400mf"]),
        ("lce_maps", "resnet32"),
        ("simplex_hoc", "resnet18"),
        ("simplex_hoc", "senet18"),
    ],
)
def test_a_graph_of_fused_kernels_is_the_fused_step_bit_for_bit(images, name, backbone):
    def fused():
        return replace(make_step(images, name, "bf16", backbone=backbone), compiled=fused_network)

    assert same(after(fused(), "eager"), after(fused(), "graph"))


def test_a_step_that_fails_while_it_is_captured_says_why_and_can_be_captured_later(images):
    step = make_step(images, "simplex_hoc", "bf16")
    run = make_executor("graph", step)
    while run._eager_left:
        run()
    works, step._new = step._new, lambda x: [][0]  # after the old model was asked beside
    with pytest.raises(IndexError):
        run()
    step._new = works
    for _ in range(3):
        run()
    torch.cuda.synchronize()
    assert step.loss_sums.sums.isfinite().all()


@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-4), ("bf16", 2e-2)])
@pytest.mark.parametrize("name", ["er", "simplex_hoc"])
def test_fifty_steps_of_a_graph_agree_with_eager(images, name, precision, tolerance):
    """Each step from the eager run's weights and random numbers: its loss and its gradients."""
    eager, other = make_step(images, name, precision), make_step(images, name, precision)
    run = make_executor("graph", other)
    for _ in range(50):
        copy_state(eager, other)
        (wanted, found), (loss, other_loss) = gradients_after([(eager, eager), (other, run)])
        assert relative(found, wanted) < tolerance
        assert abs(other_loss - loss) < tolerance * abs(loss)


def gradients_after(steps):
    """The flat gradient of the encoder and the loss, after one call of each."""
    before = [step.loss_sums.sums.sum().item() if step.loss_sums.names else 0.0 for step, _ in steps]
    for _, run in steps:
        run()
    torch.cuda.synchronize()
    losses = [step.loss_sums.sums.sum().item() - at for (step, _), at in zip(steps, before)]
    return [gradients(step) for step, _ in steps], losses


def gradients(step):
    return torch.cat([p.grad.flatten() for p in step.encoder.parameters()])


def relative(a, b):
    return ((a - b).norm() / b.norm()).item()


def copy_state(source, target):
    for module, copy in ((source.encoder, target.encoder), (source.method, target.method)):
        for a, b in zip([*module.parameters(), *module.buffers()], [*copy.parameters(), *copy.buffers()]):
            b.data.copy_(a)
    for a, b in zip(source.encoder.parameters(), target.encoder.parameters()):
        if "momentum_buffer" in source.optimizer.state.get(a, {}) and b in target.optimizer.state:
            target.optimizer.state[b]["momentum_buffer"].copy_(source.optimizer.state[a]["momentum_buffer"])
    target.generator.set_state(source.generator.get_state())
    target.done.copy_(source.done)


@pytest.mark.parametrize("executor", ["graph", "fused"])
def test_neighbours_do_not_disturb_each_other(images, executor):
    """Every method at once, each on its own stream, end where each ends alone."""
    names = [*METHODS, "lce_maps"]
    alone = [after(make_step(images, name, "bf16", seed), executor, 40) for seed, name in enumerate(names)]
    steps = [make_step(images, name, "bf16", seed) for seed, name in enumerate(names)]
    torch.cuda.synchronize()  # they were laid out on another stream than those that are to carry them out
    found: list = [None] * len(steps)

    def work(i):
        with torch.cuda.stream(torch.cuda.Stream()):
            run = make_executor(executor, steps[i])
            for _ in range(40):
                run()
            torch.cuda.current_stream().synchronize()
            found[i] = dict(steps[i].encoder.state_dict()) | {"sums": steps[i].loss_sums.sums}

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(steps))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name, one, other in zip(names, alone, found):
        assert other is not None, name
        assert same(one, other), name


def test_neighbours_begin_task_after_task(images):
    """Later graphs of a thread take over the memory of the one before, and are captured while neighbours replay."""
    names, tasks = ["er", "simplex_hoc", "simplex_hoc_views", "cvs"], 4
    alone = [[after(make_step(images, name, "bf16", seed), "fused", 25) for seed in range(tasks)] for name in names]
    found: list = [None] * len(names)

    def work(i):
        with torch.cuda.stream(torch.cuda.Stream()):
            ended = []
            for seed in range(tasks):
                step = make_one_at_a_time(images, names[i], "bf16", seed)
                run = make_executor("fused", step)
                for _ in range(25):
                    run()
                torch.cuda.current_stream().synchronize()
                ended.append({name: value.clone() for name, value in step.encoder.state_dict().items()})
            found[i] = ended

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(names))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name, wanted, ended in zip(names, alone, found):
        assert ended is not None, name
        for one, other in zip(wanted, ended):
            assert same(other, one), name


def make_one_at_a_time(*arguments):
    with GENERATOR_LOCK:  # the weights come from torch's global generator, which threads share
        return make_step(*arguments)


def test_auto_is_the_eager_step_bit_for_bit_where_there_are_kernels(images):
    def step():
        return make_step(images, "simplex_hoc", "bf16")

    assert not why_not_fused(step())
    eager = after(step(), "eager")
    assert same(eager, after(step(), "auto"))
    assert not same(eager, after(step(), "fused"))  # which rounds in other places


@pytest.mark.parametrize("name", ["er", "simplex_hoc"])
def test_fifty_fused_steps_are_as_near_to_fp32_as_eager_ones(images, name):
    """Two ways of rounding to bf16 give gradients as far from each other as from fp32 (some 0.3 here, where images are
    noise): so both are compared with fp32. That the kernels themselves are right to 1e-4 is in tests/kernels."""
    eager, other, true = (make_step(images, name, precision) for precision in ("bf16", "bf16", "fp32"))
    run = make_executor("fused", other)
    far_eager, far_fused = 0.0, 0.0
    for _ in range(50):
        copy_state(eager, other)
        copy_state(eager, true)
        (a, b, wanted), (loss, fused_loss, _) = gradients_after([(eager, eager), (other, run), (true, true)])
        assert abs(fused_loss - loss) < 2e-2 * abs(loss)
        far_eager += relative(a, wanted) / 50
        far_fused += relative(b, wanted) / 50
    assert far_fused < 1.1 * far_eager, (far_fused, far_eager)


def test_a_graph_draws_the_same_resized_crops(images):
    crop = {"crop_padding": 0, "resized_crop": 28}
    eager = after(make_step(images, "simplex_hoc", **crop), "eager")
    assert same(eager, after(make_step(images, "simplex_hoc", **crop), "graph"))
    assert not same(eager, after(make_step(images, "simplex_hoc", **crop, seed=1), "graph"))


def test_later_graphs_take_no_more_memory(images):
    reserved = []
    for seed in range(6):
        after(make_step(images, "simplex_hoc_views", "bf16", seed), "fused")
        reserved.append(torch.cuda.memory_reserved())
    assert reserved[-1] == reserved[2], reserved
