"""A second, short training on features, for methods that learn a map between models."""

import torch

from holdfast.errors import HoldfastError
from holdfast.methods import Method, Survey


def train_on_features(method: Method, survey: Survey, *, seed: int, task: int) -> None:
    """Train what ``method.feature_phase`` names, if anything, with both networks frozen and run once."""
    phase = method.feature_phase()
    before = survey.old(mirrored=True) if phase is not None else None
    if phase is None or before is None:
        return
    z_old, labels = before
    z, _ = survey.new(mirrored=True)
    optimizer = torch.optim.Adam(phase.parameters, lr=phase.lr)
    generator = torch.Generator(z.device).manual_seed(seed)
    worst = torch.zeros((), device=z.device)
    for _ in range(phase.epochs):
        for some in torch.randperm(len(z), generator=generator, device=z.device).split(phase.batch_size):
            terms = phase.loss(z_old[some], z[some], labels[some])
            loss = torch.stack(list(terms.values())).sum()
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            worst = torch.maximum(worst, loss.detach())  # keeps a NaN once there is one
    if not bool(worst.isfinite()):
        raise HoldfastError(f"the map learned after task {task} became NaN or infinite; try a lower rate for it")
