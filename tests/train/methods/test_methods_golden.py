"""Loss terms of three fixed steps of every method, held to committed numbers: no change of arithmetic goes unnoticed.

The numbers are in ``golden_losses.json``. Where a change of arithmetic is meant, write and commit them with it:

    python tests/train/methods/test_methods_golden.py --write            # all
    python tests/train/methods/test_methods_golden.py --write er fan     # those of some methods or variants

The tasks are trained by ``train_scenario`` and ``fit`` on a CPU in float32 with one thread. Images and weights are made
from integers of a bit generator, whose stream is the same on every platform and with every version of numpy.
"""

import inspect
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from holdfast.core.run_folder import RunFolder
from holdfast.train.data import ImageSet
from holdfast.train.data.device_images import DeviceImages
from holdfast.train.encoders import Encoder, Preprocess, build_backbone
from holdfast.train.engine import FitOptions, RunControl, ScenarioSetup, train_scenario
from holdfast.train.methods import METHODS
from holdfast.train.scenarios import SlotRegistry, cl2r
from holdfast.train.scenarios.iam_cl2r import ModelSpace, iam_cl2r

GOLDEN = Path(__file__).with_name("golden_losses.json")
WRITE = "python tests/train/methods/test_methods_golden.py --write"
RTOL, ATOL = 1e-4, 1e-6
STEPS = 3
SLOTS = 8
CLASSES, PER_CLASS, SIDE = tuple("abcdef"), 8, 12

VARIANTS = {
    "er-views": ("er", {"view_weight": 0.5}),
    "bct-synthesise": ("bct", {"synthesise": True}),
    "lce-margin": ("lce", {"margin": 0.1}),
    "cvs-views": ("cvs", {"view_weight": 0.5}),
    "simplex_fd-all-squared": ("simplex_fd", {"on": "all", "distance": "squared"}),
    "simplex_hoc-paper-frobenius": ("simplex_hoc", {"negatives": "paper", "scale": "frobenius"}),
    "simplex_hoc-masked-length": ("simplex_hoc", {"negatives": "masked", "length": 4.0}),
    "simplex_fd-turned": ("simplex_fd", {"placing": "means"}),
    "simplex_hoc-turned": ("simplex_hoc", {"placing": "means", "length": 16.0, "first_length": 16.0}),
    "simplex_hoc-turned-identity": ("simplex_hoc", {"placing": "means", "layer": "identity", "slots": 24}),
    "simplex_hoc_views-learned-nce": ("simplex_hoc_views", {"anchors": "learned", "anchor_form": "nce"}),
}
"""Options that change the arithmetic: a name for each, the method and the options."""

CASES = {**{name: (name, {}) for name in METHODS}, **VARIANTS}
"""Every method of the table as it stands, and the variants."""

OPTIONS = FitOptions(
    epochs=STEPS,  # of one step each
    batch_size=24,
    lr=0.002,  # with larger steps what platforms round differently grows: to 1e-3 with 0.05
    schedule="constant",
    crop_padding=0,
    flip=True,  # two views of an image differ by this alone
    executor="eager",
    seed=0,
)


def integers(seed: int, count: int) -> np.ndarray:
    """``count`` integers below 2^24."""
    return np.random.PCG64(seed).random_raw(count) >> np.uint64(40)


def images() -> DeviceImages:
    """Grey images of noise, brighter where their class has its spot: 12 x 12 pixels."""
    labels = np.repeat(np.arange(len(CLASSES)), PER_CLASS)
    shape = (len(labels), SIDE, SIDE, 1)
    pixels = (integers(1, int(np.prod(shape))) % 128).astype(np.uint8).reshape(shape)
    for image, label in zip(pixels, labels, strict=True):
        row, column = divmod(int(label), 3)
        image[6 * row : 6 * row + 6, 4 * column : 4 * column + 4] += 100
    return DeviceImages(ImageSet(pixels, labels, CLASSES, "golden"))


def fill(module: nn.Module, seed: int) -> None:
    """Give every parameter numbers in place of those that torch drew: uniform with He's bound, norms around 1."""
    for number, (name, parameter) in enumerate(module.named_parameters()):
        drawn = integers(1000 * seed + number, parameter.numel()).astype(np.float32) / np.float32(2**23) - 1
        values = torch.from_numpy(drawn).reshape(parameter.shape)
        if parameter.ndim > 1:
            values = values * (6 / (parameter.numel() / len(parameter))) ** 0.5
        else:
            values = values / 4 + (1 if name.endswith("weight") else 0)
        with torch.no_grad():
            parameter.copy_(values)


def make_encoder(method_name: str, options: dict, seed: int) -> Encoder:
    network = build_backbone("small", width=4)
    preprocess = Preprocess(size=SIDE, mean=(0.4,), std=(0.25,), colour="grey")
    encoder = Encoder.for_method(make_method(method_name, options), backbone=network, preprocess=preprocess)
    fill(encoder, seed)
    return encoder


def make_method(name: str, options: dict, feature_losses: list | None = None):
    """The method, with weights from ``fill`` whenever it begins a task.

    What its loss on features gives (``feature_phase``), if it has one, goes to ``feature_losses``.
    """
    slots = {"slots": SLOTS} if "slots" in inspect.signature(METHODS[name]).parameters else {}
    method = METHODS[name](**{**slots, **options})
    begin, feature_phase = method.begin, method.feature_phase

    def begin_filled(task, dim):
        begin(task, dim)
        fill(method, 10 + task.number)

    def watched_phase():
        phase = feature_phase()
        if phase is None or feature_losses is None:
            return phase

        def loss(z_old, z, labels):
            terms = phase.loss(z_old, z, labels)
            feature_losses.append(_rounded({term: value.item() for term, value in terms.items()}))
            return terms

        return phase._replace(loss=loss)

    method.begin, method.feature_phase = begin_filled, watched_phase
    return method


def _rounded(terms: dict[str, float]) -> dict[str, float]:
    """To the digits that float32 has."""
    return {name: float(f"{value:.8g}") for name, value in terms.items()}


def trained(scenario, name: str, options: dict) -> dict[int | str, list[dict[str, float]]]:
    """Per task the terms of each step; under "features" those of the first steps on features, where there are some."""
    found: dict[int | str, list[dict[str, float]]] = {}
    feature_losses: list[dict[str, float]] = []

    def log(event):
        if event.kind == "begin":
            assert event.steps == STEPS
        if event.kind == "epoch":
            found.setdefault(event.task, []).append(_rounded(event.terms))

    with tempfile.TemporaryDirectory() as folder:
        train_scenario(
            scenario,
            images(),
            RunFolder(folder),
            ScenarioSetup(
                make_encoder=lambda: make_encoder(name, options, 1),
                make_method=lambda: make_method(name, options, feature_losses),
                options=OPTIONS,
                load_model=lambda model: make_encoder(name, options, int(model)),
            ),
            control=RunControl(log),
        )
    return found | ({"features": feature_losses[:STEPS]} if feature_losses else {})


def losses(case: str) -> dict[str, list[dict[str, float]]]:
    """Loss terms of the first three steps of each part of a case.

    first: a first task. second: the one that follows, with its buffer and the model before. third: the next, with two
    past models. features: the training on features after the second. replaced: a second task that begins with another
    model and is held to that one.
    """
    name, options = CASES[case]
    labels, tasks = images().labels.numpy(), {"initial": 2, "tasks": 3, "buffer_per_class": 6}
    slots = make_method(name, options).num_slots
    plain = trained(cl2r(labels, CLASSES, num_slots=slots, **tasks), name, options)
    dim = make_encoder(name, options, 1).dim
    cards = {model: ModelSpace(dim, None if slots is None else SlotRegistry(slots)) for model in ("2", "3")}
    loaded = iam_cl2r(
        labels, CLASSES, models=cards, model="2", replace_at=(2,), replace_with=("3",), num_slots=slots, **tasks
    )
    parts = {"first": plain[1], "second": plain[2], "third": plain[3], "features": plain.get("features")}
    parts["replaced"] = trained(loaded, name, options)[2]
    return {part: terms for part, terms in parts.items() if terms is not None}


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def golden() -> dict:
    return json.loads(GOLDEN.read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", CASES)
def test_losses_are_the_committed_ones(case, golden):
    if case not in golden:
        pytest.fail(f"no golden losses of {case!r}: check its arithmetic, then write them with: {WRITE} {case}")
    found = losses(case)
    assert found.keys() == golden[case].keys()
    for part, steps in found.items():
        for number, (terms, wanted) in enumerate(zip(steps, golden[case][part], strict=True), start=1):
            assert terms == pytest.approx(wanted, rel=RTOL, abs=ATOL), (
                f"{case}, {part}, step {number}: the loss has changed; if that is meant: {WRITE} {case}"
            )


def test_no_golden_losses_are_left_over(golden):
    assert list(golden) == list(CASES), f"{GOLDEN.name} has other cases than METHODS and VARIANTS: {WRITE}"


def test_the_terms_that_hold_to_the_old_model_are_among_them(golden):
    """Were a second task to have only the terms of a first one, the numbers would say nothing of compatibility."""
    for case, parts in golden.items():
        name, options = CASES[case]
        terms = {part: set(steps[0]) for part, steps in parts.items()}
        assert all(len(steps) == STEPS for steps in parts.values())
        if make_method(name, options).old_features != "none":
            assert terms["second"] > terms["first"], case
    assert {"view", "anchor"} <= golden["simplex_hoc_views"]["second"][0].keys()  # a second view, kept features
    assert golden["fan"]["features"]


def write(names: list[str]) -> None:
    unknown = set(names) - set(CASES)
    if unknown:
        sys.exit(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(CASES)}")
    torch.set_num_threads(1)
    held = json.loads(GOLDEN.read_text(encoding="utf-8")) if GOLDEN.exists() else {}
    fresh = {case: losses(case) if not names or case in names or case not in held else held[case] for case in CASES}
    lines = ",\n".join(f"{json.dumps(case)}: {{\n{_in_lines(parts)}\n}}" for case, parts in fresh.items())
    GOLDEN.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
    changed = [case for case in CASES if fresh[case] != held.get(case)]
    sys.stdout.write(f"{GOLDEN}: {', '.join(changed) or 'nothing'} changed\n")


def _in_lines(parts: dict[str, list[dict[str, float]]]) -> str:
    """One step to a line, so that a diff shows which steps changed."""
    steps = {part: ",\n".join(f"  {json.dumps(terms)}" for terms in listed) for part, listed in parts.items()}
    return ",\n".join(f" {json.dumps(part)}: [\n{listed}\n ]" for part, listed in steps.items())


if __name__ == "__main__":
    if sys.argv[1:2] != ["--write"]:
        sys.exit(f"usage: {WRITE} [NAME ...]")
    write(sys.argv[2:])
