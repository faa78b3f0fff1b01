"""A small gallery of two classes of pictures, and clients of its service in this process."""

import contextlib
import importlib.util
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from service_inputs import ADDRESS, png, serving

from holdfast.gallery import Gallery, Item
from holdfast.train.encoders import Encoder, Preprocess, build_backbone
from holdfast.train.scenarios import SlotRegistry

if TYPE_CHECKING:
    from starlette.testclient import TestClient

if not all(importlib.util.find_spec(name) for name in ("qdrant_edge", "fastapi")):
    collect_ignore_glob = ["test_*"]  # the serve extra is not installed

DIM, STORED_DIM = 59, 32


def make_model(folder: Path, seed: int) -> Path:
    torch.manual_seed(seed)
    preprocess = Preprocess(size=16, mean=(0.2,), std=(0.3,), colour="grey")
    info = {"slots": SlotRegistry(DIM + 1).take_left(["a", "b"]).to_json()}
    Encoder(build_backbone("small", width=8), DIM, preprocess=preprocess, info=info).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    root = tmp_path_factory.mktemp("service-models")
    return [make_model(root / "first", 1), make_model(root / "second", 2)]


@pytest.fixture(scope="session")
def pictures() -> np.ndarray:
    """40 random grey pictures of 16 x 16, uint8."""
    return np.random.default_rng(0).integers(0, 256, (40, 16, 16), dtype=np.uint8)


@pytest.fixture(scope="session")
def filled(models: list[Path], pictures: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A gallery, to be copied, whose 40 items have a label, a price and an image."""
    root = tmp_path_factory.mktemp("service")
    for number, picture in enumerate(pictures):
        (root / f"{number}.png").write_bytes(png(picture))
    with Gallery.create(root / "g", models[0]) as made:
        made.add(
            Item(f"{'ab'[n % 2]}/{n}", path=root / f"{n}.png", label="ab"[n % 2], metadata={"price": n})
            for n in range(len(pictures))
        )
    return root / "g"


@pytest.fixture
def gallery(filled: Path, tmp_path: Path) -> Iterator[Gallery]:
    shutil.copytree(filled, tmp_path / "g")
    with Gallery.open(tmp_path / "g") as opened:
        yield opened


@pytest.fixture
def make_client(gallery: Gallery) -> Iterator[Callable[..., "TestClient"]]:
    """A client of the gallery's service, which is set up as the keywords say and runs until the test ends.

    served: by a server with a port, which the verbs of ``holdfast gallery`` find.
    """
    from starlette.testclient import TestClient

    from holdfast.service.access_control import AccessControl
    from holdfast.service.app import build_app

    with contextlib.ExitStack() as stack:

        def make(access: Any = None, **options: Any) -> "TestClient":
            access = access or AccessControl({})
            if options.pop("served", False):
                return stack.enter_context(serving(gallery, access, **options))
            return stack.enter_context(TestClient(build_app(gallery, access=access, **options), base_url=ADDRESS))

        yield make


@pytest.fixture
def client(make_client: Callable[..., "TestClient"]) -> "TestClient":
    return make_client()
