"""The recipes of IAM-CL2R: pre-training ones are checked, and the large scale is run at toy size on made-up faces."""

import numpy as np
import pytest
from PIL import Image, ImageDraw

from holdfast.core.run_folder import RunFolder
from holdfast.train.encoders import Encoder
from holdfast.train.engine.model_slots import read_slots
from holdfast.train.experiments.assemble import SharedData
from holdfast.train.experiments.execute import execute
from holdfast.train.experiments.load import builtin_recipes
from holdfast.train.experiments.pretrain import pretrain
from holdfast.train.experiments.schema import check_recipe
from made_up_sets import casia, celeba
from papers.stationary.recipe_files import FOLDER, read_study_recipe, study_recipe
from papers.sweeps.pretraining import plan_models

OF_THE_STUDY = {path.relative_to(FOLDER).with_suffix("").as_posix() for path in FOLDER.rglob("*.toml")}
RECIPES = sorted({*dict(builtin_recipes()), *OF_THE_STUDY})
PRETRAIN = [name for name in RECIPES if name.startswith("pretrain/")]
PARTS = ("train", "query", "gallery")
TINY_VIT = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 32,
    "patch_size": 8,
    "num_register_tokens": 1,
}


@pytest.mark.parametrize("name", PRETRAIN)
def test_pretraining_recipes(name):
    planned = plan_models([study_recipe(name)], methods=["simplex_hoc", "er"])
    assert [folder.rpartition("-")[2] for folder in planned] == ["simplex", "learnable"]


def draw_face(file, person, number):
    """A person is a set of proportions and colours; images differ in light, pose and noise."""
    own, random = np.random.default_rng([1, person]), np.random.default_rng([2, person, number])
    skin, hair = own.integers(60, 250, 3), own.integers(0, 200, 3)
    width, eyes, mouth = own.uniform(8, 13), own.uniform(3, 6), own.uniform(2, 6)
    picture = Image.new("RGB", (32, 32), tuple(random.integers(0, 255, 3).tolist()))
    pen = ImageDraw.Draw(picture)
    x, y = 16 + random.uniform(-2, 2), 16 + random.uniform(-2, 2)
    pen.ellipse((x - width, y - 14, x + width, y + 14), fill=tuple(hair.tolist()))
    pen.ellipse((x - width + 1, y - 9, x + width - 1, y + 14), fill=tuple(skin.tolist()))
    for side in (-eyes, eyes):
        pen.ellipse((x + side - 1.5, y - 3, x + side + 1.5, y), fill=(20, 20, 20))
    pen.line((x - mouth, y + 7, x + mouth, y + 7), fill=(150, 30, 30), width=2)
    noisy = np.asarray(picture) * random.uniform(0.7, 1.1) + random.normal(0, 8, (32, 32, 3))
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(file, quality=95)


@pytest.fixture(scope="module")
def faces(tmp_path_factory):
    """As users have them: 6 people in CASIA-WebFace; in CelebA 16 to fine-tune on, 2 left alone and 4 searched for."""
    top = tmp_path_factory.mktemp("faces")
    casia(top, 6, 6, draw_face)
    train, val, test = range(101, 117), (201, 202), range(301, 305)
    people = [*((person, 0, 6) for person in train), *((person, 1, 2) for person in val)]
    people += [(person, 2, 7) for person in test]  # 3 to ask with, and the odd one to the gallery
    celeba(top, [(str(person), split, count) for person, split, count in people], draw_face)
    return top


@pytest.fixture(scope="module", params=["simplex_hoc", "er"])
def pretrained(request, faces, tmp_path_factory):
    """The built-in recipe's three models, smaller: of 2, 4 and 6 people, under the names of the large ones."""
    pytest.importorskip("transformers")
    method = request.param
    shared = SharedData(faces, tmp_path_factory.mktemp("models"))
    tiny_vit = ["backbone.name=hf:dinov3_vit", *(f"backbone.config.{key}={value}" for key, value in TINY_VIT.items())]
    source = study_recipe("pretrain/casia_webface")
    here = ["data.size=32", "data.incomplete=true", *tiny_vit, *smaller(method)]
    for people, count in ((2, 3525), (4, 7050), (6, 10575)):
        (folder,) = plan_models([source], methods=[method], classes=[count])
        (recipe,) = plan_models([source], methods=[method], classes=[people], settings=here).values()
        pretrain(recipe, RunFolder(shared.models / folder), shared=shared, device="cpu")
    return method, shared


def smaller(method):
    train = ["train.epochs=1", "train.batch_size=8", "train.crop_padding=2", "train.precision=fp32"]
    return [*train, *(["method.slots=24"] if method.startswith("simplex") else [])]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "brought_in"), [("iam/celeba", [1, 5, 10]), ("iam/celeba-none", [1])])
def test_large_scale_at_toy_size(name, brought_in, pretrained, tmp_path):
    """The built-in recipe and its readers as they are, but for the sizes: 16 tasks of one person instead of 512."""
    method, shared = pretrained
    settings = [f"method.name={method}", "scenario.initial=1", "scenario.buffer_per_class=2", *smaller(method)]
    for split in PARTS:
        settings += [f"data.{split}.size=32", f"data.{split}.incomplete=true"]
    at = read_study_recipe(name)["scenario"].get("replace_at_classes", [])
    settings += [f"scenario.replace_at_classes={[count // 512 for count in at]}"] if at else []
    recipe = check_recipe(read_study_recipe(name, settings))
    metrics = execute(recipe, RunFolder(tmp_path / "run"), shared=shared, device="cpu")
    assert [task["task"] for task in metrics["tasks"] if "model" in task] == brought_in
    matrix = np.array(metrics["protocols"]["template"]["matrix"], dtype=float)
    assert np.isfinite(matrix[np.tril_indices(16)]).all()
    assert len(metrics["mixed"]["accuracy"]) == 16
    read = {part: (metrics["data"][part]["classes"], metrics["data"][part]["images"]) for part in PARTS}
    assert read == {"train": (16, 96), "query": (4, 12), "gallery": (4, 16)}
    assert metrics["data"]["open_set"]
    if method == "simplex_hoc":
        assert metrics["data"]["stored"]["numbers"] == [16] * 16
        assert metrics["data"]["stored"]["full"] == [23] * 16
        last = RunFolder(tmp_path / "run").model(16)
        assert read_slots(Encoder.from_pretrained(last), last).owners == {
            **{f"casia_webface/{45 + 7 * i:07d}": i for i in range(6 if len(brought_in) == 3 else 2)},
            **{f"celeba/celeba-{101 + i}": 23 - i for i in range(16)},
        }
