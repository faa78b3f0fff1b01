"""Feature distillation: new features held near the old ones."""

from torch import Tensor

from holdfast.geometry import paired_cosine


def feature_distillation(z: Tensor, z_old: Tensor) -> Tensor:
    """Mean over the batch of 1 - cos(z_i, z_old_i); range 0..2. Gradient through z only. An empty batch gives 0.

    For unit vectors this is half the squared Euclidean distance, which is why the papers call it a mean square error.
    """
    if len(z) == 0:
        return z.sum() * 0.0
    return (1 - paired_cosine(z, z_old.detach())).mean()
