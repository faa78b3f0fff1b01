"""What the buffer remembers: the right features at the right image, from disk, and only for who reads them."""

import numpy as np
import pytest
import torch

from holdfast.core.errors import HoldfastError
from holdfast.core.run_folder import RunFolder
from holdfast.train.encoders import Encoder
from holdfast.train.engine import FitOptions, KeptFeatures, ScenarioSetup, buffer_features, fit, train_scenario
from holdfast.train.methods import ER, Method, SimplexHOC, SimplexHOCViews
from holdfast.train.scenarios import ModelSpace, cl2r, iam_cl2r
from holdfast.train.tensor_files import read_torch

OPTIONS = FitOptions(epochs=1, batch_size=8, lr=0.01, crop_padding=1, flip=False)


class Reader(Method):
    """Writes down what it is given, and moves the features so that models differ."""

    reads_kept = True

    def __init__(self, calls):
        super().__init__()
        self.calls = calls
        self.register_buffer("state", torch.zeros(1))

    def begin(self, task, dim):
        self.task = task

    def loss(self, z, batch, *, z_old=None, z_view=None, z_kept=None, progress):
        self.calls.append((self.task, batch, z_kept))
        return {"size": z.square().mean()}


@pytest.fixture
def three_tasks(glyph_images):
    """Two classes a task, in an order that is not the labels'."""
    return cl2r(glyph_images.labels, glyph_images.class_names, initial=2, tasks=3, buffer_per_class=2, order_seed=5)


@pytest.fixture
def trained_folder(tmp_path, three_tasks, device_images, make_small):
    """A folder of three models by a method that reads what is kept, and its calls."""
    folder, calls = RunFolder(tmp_path), []
    train_scenario(
        three_tasks,
        device_images,
        folder,
        ScenarioSetup(
            make_encoder=lambda: make_small(5),
            make_method=lambda: Reader(calls),
            options=OPTIONS,
        ),
    )
    return folder, calls


def test_each_replayed_image_gets_its_own_past(trained_folder, three_tasks, device_images, glyph_images):
    """The table, image by image, against encoding that one image with the saved models."""
    folder, calls = trained_folder
    assert all(z_kept is None for task, _, z_kept in calls if task.number == 1)
    models = [Encoder.from_pretrained(folder.model(number)) for number in (1, 2)]
    task = three_tasks.tasks[2]
    past = [buffer_features(model, device_images, t.buffer_indices) for model, t in zip(models, three_tasks.tasks[1:])]
    kept = KeptFeatures(task, device_images, past)
    assert kept.table.shape == (8, 2, 5)
    first_classes = set(three_tasks.tasks[0].seen_classes)
    for row in np.random.default_rng(0).permutation(task.buffer_indices):
        (found,) = kept[torch.tensor([row])]
        for number, model in enumerate(models):
            expected = model.encode(glyph_images.images[[row]])[0]
            if number == 0 and glyph_images.labels[row] not in first_classes:
                expected = torch.zeros(5)
            torch.testing.assert_close(found[number], expected, atol=1e-6, rtol=0)
    shapes = {(t.number, tuple(k.shape)) for t, _, k in calls if k is not None}
    assert shapes == {(2, (4, 1, 5)), (3, (4, 2, 5))}  # half of a batch of 8, and 4 or 8 images to draw from
    # A step's anchors are those of images of the labels it has.
    for _, batch, z_kept in [call for call in calls if call[0].number == 3]:
        for label, anchors in zip(batch.labels[: batch.replayed].tolist(), z_kept):
            rows = [r for r in task.buffer_indices if glyph_images.labels[r] == task.seen_classes[label]]
            assert any(torch.equal(anchors, own) for own in kept[torch.tensor(np.array(rows))])


def test_features_are_saved_with_the_model_that_gave_them(trained_folder, three_tasks):
    folder, _ = trained_folder
    for number, following in ((1, three_tasks.tasks[1]), (2, three_tasks.tasks[2])):
        saved, _ = read_torch(folder.kept_features(number))
        assert saved["rows"].tolist() == following.buffer_indices.tolist()
        torch.testing.assert_close(saved["features"].norm(dim=1), torch.ones(len(following.buffer_indices)))
    assert not folder.kept_features(3).exists()  # nobody comes after


@pytest.mark.parametrize("make_method", [ER, lambda: SimplexHOCViews(slots=6, anchor_weight=0.0)])
def test_nothing_is_kept_for_who_does_not_read_it(make_method, tmp_path, three_tasks, device_images, make_small):
    folder = RunFolder(tmp_path)
    train_scenario(
        three_tasks,
        device_images,
        folder,
        ScenarioSetup(
            make_encoder=lambda: make_small(5),
            make_method=make_method,
            options=OPTIONS,
        ),
    )
    assert not list(tmp_path.rglob("kept*"))


@pytest.mark.parametrize(("replaced_by", "pasts"), [(5, {(2, 1), (3, 2), (4, 3)}), (6, {(2, 1), (4, 1)})])
def test_across_a_replacement(replaced_by, pasts, tmp_path, glyph_images, device_images, make_small):
    """Past models count on as long as sizes are equal; of another size, only those from the replacement on do."""
    sizes = {"first": 5, "second": replaced_by}
    scenario = iam_cl2r(
        glyph_images.labels,
        glyph_images.class_names,
        models={name: ModelSpace(dim) for name, dim in sizes.items()},
        model="first",
        replace_at=(3,),
        replace_with=("second",),
        initial=3,
        tasks=4,
        buffer_per_class=2,
    )
    calls = []
    train_scenario(
        scenario,
        device_images,
        RunFolder(tmp_path),
        ScenarioSetup(
            make_encoder=lambda: make_small(5),
            make_method=lambda: Reader(calls),
            options=OPTIONS,
            load_model=lambda name: make_small(sizes[name]),
        ),
    )
    assert {(task.number, z_kept.shape[1]) for task, _, z_kept in calls if z_kept is not None} == pasts
    assert {task.number for task, _, _ in calls} == {1, 2, 3, 4}


def test_refusals(two_tasks, device_images, make_small):
    task, old = two_tasks.tasks[1], make_small(5)
    with pytest.raises(
        HoldfastError, match=r"task 2 needs the features that past models gave the buffered images; pass .* kept"
    ):
        fit(make_small(5), SimplexHOCViews(slots=6), task, device_images, old=old, options=OPTIONS)
    other = [buffer_features(make_small(dim), device_images, task.buffer_indices) for dim in (4, 5)]
    with pytest.raises(HoldfastError, match="past model 1 has features of size 4, the last one of 5"):
        KeptFeatures(task, device_images, other)


def test_ours_without_its_parts_is_hoc_bit_for_bit(two_tasks, device_images, make_small):
    """The same random numbers too: a view that is not read is not drawn."""
    bare = {"first_view": 0.0, "view_weight": 0.0, "anchor_weight": 0.0}
    states = []
    for method in (SimplexHOC(slots=6, lambda_=0.3), SimplexHOCViews(slots=6, lambda_=0.3, **bare)):
        encoder, old = make_small(5), make_small(5, seed=9)
        for task, reference in zip(two_tasks.tasks, (None, old)):
            fit(encoder, method, task, device_images, old=reference, options=OPTIONS)
        states.append(encoder.state_dict())
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_without_a_buffer_there_is_nothing_to_keep(tmp_path, glyph_images, device_images, make_small):
    scenario = cl2r(glyph_images.labels, glyph_images.class_names, initial=3, tasks=2, buffer_per_class=0)
    calls = []
    train_scenario(
        scenario,
        device_images,
        RunFolder(tmp_path),
        ScenarioSetup(
            make_encoder=lambda: make_small(5),
            make_method=lambda: Reader(calls),
            options=OPTIONS,
        ),
    )
    assert {task.number for task, _, _ in calls} == {1, 2}
    assert all(z_kept is None for _, _, z_kept in calls)


def test_remembering_leaves_the_encoder_as_it_was(device_images, make_small):
    encoder = make_small(5).train()
    before = {name: tensor.clone() for name, tensor in encoder.state_dict().items()}
    rows, features = buffer_features(encoder, device_images, np.array([3, 1]))
    assert encoder.training
    assert all(torch.equal(before[name], tensor) for name, tensor in encoder.state_dict().items())
    assert (rows.tolist(), features.requires_grad) == ([3, 1], False)
