"""A map of queries that is trained by gradient steps: the most that the oracle allows a map to be."""

from collections.abc import Callable

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from holdfast.bridges.maps import Rotation


def fit_residual_mlp(
    new: np.ndarray, old: np.ndarray, *, hidden: int = 256, steps: int = 200, rate: float = 0.001
) -> Callable[[np.ndarray], np.ndarray]:
    """A rotation plus a small network that learns what the rotation leaves over, as a function of queries.

    new: N x d_new and old: N x d_old unit rows, row i the same item.
    Trained on cosines to the old vectors with Adam and weight decay 0.01, batches of 256 pairs, a fixed seed. The
    network's last layer starts at zero, so that training starts from the rotation.
    """
    rotation = Rotation.fit(new, old, centred=True)
    generator = torch.Generator().manual_seed(0)
    network = nn.Sequential(nn.Linear(new.shape[1], hidden), nn.ReLU(), nn.Linear(hidden, old.shape[1]))
    first, *others = network.parameters()
    with torch.no_grad():
        first.normal_(0, new.shape[1] ** -0.5, generator=generator)
        for parameter in others:
            parameter.zero_()
    inputs, targets, base = (torch.from_numpy(rows) for rows in (new, old, rotation(new)))
    optimizer = torch.optim.AdamW(network.parameters(), lr=rate, weight_decay=0.01)
    for _ in range(steps):
        rows = torch.randint(len(new), (min(256, len(new)),), generator=generator)
        loss = 1 - F.cosine_similarity(base[rows] + network(inputs[rows]), targets[rows]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    @torch.no_grad()
    def carried(queries: np.ndarray) -> np.ndarray:
        return rotation(queries) + network(torch.from_numpy(queries)).numpy()

    return carried
