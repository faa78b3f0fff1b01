"""Features with a known structure: classes around fixed directions, a gallery that stays, better and worse models."""

from collections.abc import Callable

import numpy as np
import pytest

Made = tuple[np.ndarray, np.ndarray]


def clustered(labels: np.ndarray, noise: float, *, dim: int = 16, seed: int = 0, world: int = 0) -> np.ndarray:
    """Unit features around a direction per class; ``world`` chooses the directions, ``noise`` how far they scatter."""
    centres = np.random.default_rng(1000 + world).standard_normal((int(labels.max()) + 1, dim))
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    z = centres[labels] + noise * np.random.default_rng(seed).standard_normal((len(labels), dim))
    return (z / np.linalg.norm(z, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture(name="clustered")
def clustered_fixture() -> Callable[..., np.ndarray]:
    return clustered


@pytest.fixture
def sets() -> dict[str, Made]:
    """20 classes: a gallery, old queries (noisy), new queries (less so) and the gallery anew; (features, labels)."""
    gallery_labels, labels = np.arange(200) % 20, np.random.default_rng(5).integers(0, 20, 600)
    return {
        "gallery": (clustered(gallery_labels, 0.25, seed=1), gallery_labels),
        "queries_old": (clustered(labels, 0.35, seed=2), labels),
        "queries_new": (clustered(labels, 0.25, seed=3), labels),
        "gallery_new": (clustered(gallery_labels, 0.2, seed=4), gallery_labels),
    }
