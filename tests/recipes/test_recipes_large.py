"""The recipes of IAM-CL2R: pre-training ones are checked, and the large scale is run at toy size on made-up faces."""

import numpy as np
import pytest
from PIL import Image, ImageDraw

from holdfast.methods import METHODS
from holdfast.recipes.assemble import SharedData
from holdfast.recipes.execute import execute
from holdfast.recipes.load import builtin_recipes, read_recipe
from holdfast.recipes.pretrain import pretrain
from holdfast.recipes.pretrain_many import plan_models
from holdfast.recipes.pretrain_schema import check_pretrain_recipe
from holdfast.recipes.schema import check_recipe
from holdfast.run_folder import RunFolder

PRETRAIN = [name for name, _ in builtin_recipes() if name.startswith("pretrain/")]
TINY_VIT = {
    "name": "hf:dinov3_vit",
    "config": {
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "image_size": 32,
        "patch_size": 8,
        "num_register_tokens": 1,
    },
}


@pytest.mark.parametrize("name", PRETRAIN)
def test_pretraining_recipes(name):
    planned = plan_models([name], methods=["simplex_hoc", "er"])
    assert [folder.rpartition("-")[2] for folder in planned] == ["simplex", "learnable"]


@pytest.mark.parametrize("name", [name for name, _ in builtin_recipes() if name.startswith("iam/")])
def test_the_models_that_recipes_name_are_those_that_pretraining_makes(name):
    scenario = read_recipe(name)["scenario"]
    for model in [scenario["model"], *scenario.get("replace_with", [])]:
        dataset, _, rest = model.partition("/")
        backbone, classes, head = rest.rsplit("-", 2)
        assert head == "{head}"
        source = read_recipe(f"pretrain/{dataset}")
        known = [source["backbone"]["name"], "senet18", "regnety_400mf"]
        (own,) = [one for one in known if one.endswith(backbone)]
        planned = plan_models([f"pretrain/{dataset}"], backbones=[own], classes=[int(classes)])
        assert list(planned) == [model.replace("{head}", "simplex")]


def draw_faces(folder, people, images, *, first=0, start=0):
    """A person is a set of proportions and colours; images differ in light, pose and noise."""
    for person in range(first, first + people):
        own = np.random.default_rng([1, person])
        skin, hair = own.integers(60, 250, 3), own.integers(0, 200, 3)
        width, eyes, mouth = own.uniform(8, 13), own.uniform(3, 6), own.uniform(2, 6)
        (folder / f"{person:06d}").mkdir(parents=True)
        for number in range(start, start + images):
            random = np.random.default_rng([2, person, number])
            picture = Image.new("RGB", (32, 32), tuple(random.integers(0, 255, 3).tolist()))
            pen = ImageDraw.Draw(picture)
            x, y = 16 + random.uniform(-2, 2), 16 + random.uniform(-2, 2)
            pen.ellipse((x - width, y - 14, x + width, y + 14), fill=tuple(hair.tolist()))
            pen.ellipse((x - width + 1, y - 9, x + width - 1, y + 14), fill=tuple(skin.tolist()))
            for side in (-eyes, eyes):
                pen.ellipse((x + side - 1.5, y - 3, x + side + 1.5, y), fill=(20, 20, 20))
            pen.line((x - mouth, y + 7, x + mouth, y + 7), fill=(150, 30, 30), width=2)
            noisy = np.asarray(picture) * random.uniform(0.7, 1.1) + random.normal(0, 8, (32, 32, 3))
            Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(folder / f"{person:06d}" / f"{number}.png")


@pytest.fixture(scope="module")
def faces(tmp_path_factory):
    """Nested sets of 2, 4 and 6 people to pre-train on, 16 to fine-tune on, and 4 others searched for."""
    top = tmp_path_factory.mktemp("faces")
    for people in (2, 4, 6):
        draw_faces(top / f"casia-{people}" / "train", people, 6)
    draw_faces(top / "celeba" / "train", 16, 6, first=100)
    draw_faces(top / "celeba" / "query", 4, 3, first=200)
    draw_faces(top / "celeba" / "gallery", 4, 3, first=200, start=3)
    return top


@pytest.mark.slow
@pytest.mark.parametrize("method", ["simplex_hoc", "er"])
def test_large_scale_at_toy_size(method, faces, tmp_path):
    """The built-in recipe as it is, but for the sizes: 16 tasks of one person instead of 512."""
    pytest.importorskip("transformers")
    shared = SharedData(faces, tmp_path / "models")
    small = {"epochs": 1, "batch_size": 8, "crop_padding": 2, "precision": "fp32"}
    slots = {"slots": 24} if METHODS[method].__name__.startswith("Simplex") else {}
    for people, name in ((2, "3525"), (4, "7050"), (6, "10575")):
        tables = read_recipe("pretrain/casia_webface", [f"method.name={method}"])
        tables["data"] = {"name": "folder", "split": "train", "path": f"casia-{people}"}
        tables |= {"backbone": TINY_VIT, "namespace": "casia_webface"}
        tables["method"] |= slots
        tables["train"] |= small
        folder = f"casia_webface/dinov3-vitb16-pretrain-lvd1689m-{name}-{'simplex' if slots else 'learnable'}"
        pretrain(check_pretrain_recipe(tables), RunFolder(tmp_path / "models" / folder), shared=shared, device="cpu")
    tables = read_recipe("iam/celeba", [f"method.name={method}"])
    for split in ("train", "query", "gallery"):
        tables["data"][split] = {"name": "folder", "split": split, "path": "celeba"}
    tables["scenario"] |= {"initial": 1, "buffer_per_class": 2}
    tables["scenario"]["replace_at_classes"] = [count // 512 for count in tables["scenario"]["replace_at_classes"]]
    tables["method"] |= slots
    tables["methods"] = {}
    tables["train"] |= small
    metrics = execute(check_recipe(tables), RunFolder(tmp_path / "run"), shared=shared, device="cpu")
    replaced = [task["task"] for task in metrics["tasks"] if "model" in task]
    assert replaced == [1, 5, 10]
    matrix = np.array(metrics["protocols"]["template"]["matrix"], dtype=float)
    assert np.isfinite(matrix[np.tril_indices(16)]).all()
    assert len(metrics["mixed"]["accuracy"]) == 16
    if slots:
        assert metrics["data"]["stored"]["numbers"] == [16] * 16
        assert metrics["data"]["stored"]["full"] == [23] * 16
