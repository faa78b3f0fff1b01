"""Maps from a new model's space to an old model's space, fitted on items that both models embedded.

All maps take unit query vectors (Q x d_new) and return vectors (Q x d_old) that the caller normalises. They act on
queries only: stored vectors stay as they are.
"""

from collections.abc import Mapping
from typing import ClassVar, Protocol, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

_QUERIES_AT_ONCE = 256


class QueryMap(Protocol):
    """What a kind of map offers. Options are the keyword arguments of ``fit``; tensors are all that it learned."""

    kind: ClassVar[str]

    @classmethod
    def fit(cls, new: Tensor, old: Tensor) -> Self: ...

    def __call__(self, queries: Tensor) -> Tensor: ...

    def tensors(self) -> dict[str, Tensor]: ...

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> Self: ...


class LinearMap:
    """queries @ weight + bias, the form of all maps but two. The weight may be given as the product of two factors."""

    def __init__(self, weight: Tensor | tuple[Tensor, Tensor], bias: Tensor) -> None:
        """weight: d_new x d_old, or d_new x r and r x d_old, which are kept apart if together they are smaller."""
        if isinstance(weight, tuple) and sum(one.numel() for one in weight) >= len(weight[0]) * weight[1].shape[1]:
            weight = weight[0] @ weight[1]
        # In memory as after loading, so that results are equal. The left factor by columns: single queries are faster.
        if isinstance(weight, tuple):
            self.factors: tuple[Tensor, ...] = (weight[0].T.contiguous().T, weight[1].contiguous())
        else:
            self.factors = (weight.contiguous(),)
        self.bias = bias

    @property
    def weight(self) -> Tensor:
        """The whole matrix, d_new x d_old."""
        return self.factors[0] if len(self.factors) == 1 else self.factors[0] @ self.factors[1]

    def __call__(self, queries: Tensor) -> Tensor:
        for factor in self.factors[:-1]:
            queries = queries @ factor
        return torch.addmm(self.bias, queries, self.factors[-1])

    def one(self, query: np.ndarray) -> np.ndarray:
        """One query, d_new float32. In NumPy, which has less overhead for a single row."""
        for factor in self.factors:
            query = query @ factor.numpy()
        query += self.bias.numpy()
        return query

    def tensors(self) -> dict[str, Tensor]:
        names = ("weight",) if len(self.factors) == 1 else ("left", "right")
        return {**{name: one.contiguous() for name, one in zip(names, self.factors, strict=True)}, "bias": self.bias}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> Self:
        whole = tensors.get("weight")
        return cls((tensors["left"], tensors["right"]) if whole is None else whole, tensors["bias"])


class Rotation(LinearMap):
    """The orthogonal matrix nearest to the pairs (orthogonal Procrustes); semi-orthogonal if the sizes differ.

    Directions that the pairs do not span are dropped: nothing is known of them.
    """

    kind: ClassVar[str] = "rotation"

    @classmethod
    def fit(cls, new: Tensor, old: Tensor, *, centred: bool = False, rank: int | None = None) -> Self:
        """Fit R = U V^T, where U S V^T is the singular value decomposition of new^T old.

        new: N x d_new and old: N x d_old, row i the same item.
        centred: rotate around the means of the pairs instead of the origin.
        rank: keep the directions with the largest singular values; None keeps all. Fewer make queries faster.
        """
        new_mean, old_mean = _means(new, old, centred)
        left, right = procrustes(new - new_mean, old - old_mean)
        weight = left @ right if rank is None else (left[:, :rank], right[:rank])
        turned_mean = new_mean @ left[:, :rank] @ right[:rank]
        return cls(weight, old_mean - turned_mean)


class Affine(LinearMap):
    """Ridge regression from new to old vectors, of full or low rank."""

    kind: ClassVar[str] = "affine"

    @classmethod
    def fit(cls, new: Tensor, old: Tensor, *, ridge: float = 0.1, rank: int | None = None) -> Self:
        """Fit W = (X^T X + ridge * s * I)^-1 X^T Y around the means, with s the mean diagonal of X^T X.

        ridge: strength of the penalty, relative to the scale of the data.
        rank: keep the directions of W that explain most of the fitted values; None keeps all.
        """
        new_mean, old_mean = _means(new, old, True)
        x, y = new - new_mean, old - old_mean
        weight = ridge_weights(x, y, ridge)
        if rank is None or rank >= min(weight.shape):
            return cls(weight, old_mean - new_mean @ weight)
        directions = torch.linalg.eigh(weight.T @ (x.T @ x) @ weight).eigenvectors[:, -rank:]
        short = weight @ directions
        return cls((short, directions.T), old_mean - new_mean @ short @ directions.T)


class LambdaOrthogonal(LinearMap):
    """An affine map whose matrix may leave the orthogonal ones by at most ``slack`` (lambda-orthogonality, 2025)."""

    kind: ClassVar[str] = "lambda_orthogonal"

    @classmethod
    def fit(cls, new: Tensor, old: Tensor, *, slack: float = 4.0, steps: int = 60, rate: float = 0.003) -> Self:
        """Minimise mean |x W + b - y|^2 + max(0, |W^T W - I| - slack), from the rotation on, by Adam.

        slack: Frobenius norm of W^T W - I that costs nothing; 0 is a rotation, a large value ordinary regression.
        """
        start = Rotation.fit(new, old, centred=True)
        weight = start.weight.clone().requires_grad_()
        bias = start.bias.clone().requires_grad_()
        wide = weight.shape[0] < weight.shape[1]
        identity = torch.eye(min(weight.shape), dtype=weight.dtype)
        optimizer = torch.optim.Adam([weight, bias], lr=rate)
        for _ in range(steps):
            gram = weight @ weight.T if wide else weight.T @ weight
            excess = (gram - identity).norm() - slack
            loss = (torch.addmm(bias, new, weight) - old).square().sum(1).mean() + F.relu(excess)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return cls(weight.detach(), bias.detach())


class ResidualMLP:
    """A rotation plus a small network that learns what the rotation leaves over."""

    kind: ClassVar[str] = "residual_mlp"

    def __init__(self, rotation: Rotation, network: nn.Sequential) -> None:
        self.rotation = rotation
        self.network = network.eval().requires_grad_(False)

    @classmethod
    def fit(cls, new: Tensor, old: Tensor, *, hidden: int = 256, steps: int = 200, rate: float = 0.001) -> Self:
        """Train on cosines to the old vectors with Adam and weight decay 0.01, batches of 256 pairs, a fixed seed.

        The network's last layer starts at zero, so that training starts from the rotation.
        """
        rotation = Rotation.fit(new, old, centred=True)
        generator = torch.Generator().manual_seed(0)
        network = _network(new.shape[1], hidden, old.shape[1])
        first, *others = network.parameters()
        with torch.no_grad():
            first.normal_(0, new.shape[1] ** -0.5, generator=generator)
            for parameter in others:
                parameter.zero_()
        base = rotation(new)
        optimizer = torch.optim.AdamW(network.parameters(), lr=rate, weight_decay=0.01)
        for _ in range(steps):
            rows = torch.randint(len(new), (min(256, len(new)),), generator=generator)
            loss = 1 - F.cosine_similarity(base[rows] + network(new[rows]), old[rows]).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return cls(rotation, network)

    def __call__(self, queries: Tensor) -> Tensor:
        return self.rotation(queries) + self.network(queries)

    def tensors(self) -> dict[str, Tensor]:
        return {**self.rotation.tensors(), **{f"network.{k}": v for k, v in self.network.state_dict().items()}}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> Self:
        hidden, dim = tensors["network.0.weight"].shape
        network = _network(dim, hidden, tensors["network.2.weight"].shape[0])
        network.load_state_dict({k.removeprefix("network."): v for k, v in tensors.items() if k.startswith("network.")})
        return cls(Rotation.from_tensors(tensors), network)


class Local:
    """A rotation plus the mean residual of the nearest pairs; helps where pairs are dense."""

    kind: ClassVar[str] = "local"

    def __init__(self, rotation: Rotation, anchors: Tensor, residuals: Tensor, settings: Tensor) -> None:
        self.rotation = rotation
        self.anchors = anchors
        self.residuals = residuals
        self.settings = settings
        neighbours, self.temperature, self.weight = settings.tolist()
        self.neighbours = min(int(neighbours), len(anchors))

    @classmethod
    def fit(
        cls, new: Tensor, old: Tensor, *, neighbours: int = 10, temperature: float = 0.05, weight: float = 0.5
    ) -> Self:
        """Keep the pairs and what the rotation leaves over of each.

        neighbours: pairs whose residuals are averaged, weighted by softmax(cosine / temperature).
        weight: factor of the averaged residual.
        """
        rotation = Rotation.fit(new, old, centred=True)
        residuals = old - F.normalize(rotation(new), dim=1)
        return cls(rotation, new, residuals, torch.tensor([neighbours, temperature, weight]))

    def __call__(self, queries: Tensor) -> Tensor:
        cosines, rows = (queries @ self.anchors.T).topk(self.neighbours, dim=1)
        shares = torch.softmax(cosines / self.temperature, dim=1)
        correction = torch.einsum("qk,qkd->qd", shares, self.residuals[rows])
        return F.normalize(self.rotation(queries), dim=1) + self.weight * correction

    def tensors(self) -> dict[str, Tensor]:
        own = {"anchors": self.anchors, "residuals": self.residuals, "settings": self.settings}
        return {**self.rotation.tensors(), **own}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> Self:
        own = (tensors[name] for name in ("anchors", "residuals", "settings"))
        return cls(Rotation.from_tensors(tensors), *own)


def mapped_queries(fitted: QueryMap, queries: Tensor) -> Tensor:
    """The unit rows that a map makes of unit queries; in blocks, because a local map compares them with all pairs."""
    return torch.cat([F.normalize(fitted(block), dim=1) for block in queries.split(_QUERIES_AT_ONCE)])


def procrustes(new: Tensor, old: Tensor) -> tuple[Tensor, Tensor]:
    """Factors U (d_new x r) and V^T (r x d_old) of the (semi-)orthogonal matrix R = U V^T with the least |new R - old|.

    Directions that the data lack are left out. The others are in order of their singular values, the largest first.
    """
    if len(new) < min(new.shape[1], old.shape[1]):
        # Few pairs: the product has their rank, and its factors are found from two thin matrices.
        (q_new, r_new), (q_old, r_old) = torch.linalg.qr(new.T), torch.linalg.qr(old.T)
        u, s, vt = torch.linalg.svd(r_new @ r_old.T)
        u, vt = q_new @ u, vt @ q_old.T
    else:
        u, s, vt = torch.linalg.svd(new.T @ old, full_matrices=False)
    kept = s > s[:1] * max(new.shape) * torch.finfo(s.dtype).eps
    return u[:, kept], vt[kept]


def _means(new: Tensor, old: Tensor, centred: bool) -> tuple[Tensor, Tensor]:
    if centred:
        return new.mean(0), old.mean(0)
    return new.new_zeros(new.shape[1]), old.new_zeros(old.shape[1])


def ridge_weights(x: Tensor, y: Tensor, strength: float) -> Tensor:
    """Weights of a ridge regression of centred data, d_x x d_y.

    Solved in the smaller of the two sizes, rows or columns, which gives the same weights.
    """
    penalty = strength * x.square().sum() / x.shape[1] + torch.finfo(x.dtype).tiny ** 0.5  # equal rows: no zero
    if len(x) >= x.shape[1]:
        gram = x.T @ x
        return torch.linalg.solve(gram + penalty * torch.eye(len(gram), dtype=x.dtype), x.T @ y)
    gram = x @ x.T
    return x.T @ torch.linalg.solve(gram + penalty * torch.eye(len(gram), dtype=x.dtype), y)


def _network(dim: int, hidden: int, out: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(dim, hidden), nn.ReLU(), nn.Linear(hidden, out))
