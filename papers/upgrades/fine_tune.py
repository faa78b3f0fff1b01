"""Fine-tune EfficientNet-lite0 and lite2 on half of CUB-200-2011's classes, and embed photographs of the other half.

    python -m papers.upgrades.fine_tune CUB OUT [--seeds 0 1 2] [--epochs 3]

CUB holds ``train/CLASS/*.jpg`` and ``test/CLASS/*.jpg``. Trained on every photograph of the first 100 classes, at 128
pixels: the last block, the last convolution and a cosine classifier. The blocks before them stay as ImageNet left them,
so their activations are computed once. ``OUT/SEED/lite0-test.npz`` and ``lite2-test.npz`` get the
features and labels of the other 100 classes; ``compare_cases.py --fine-tuned OUT`` reads them. What exists is kept.

A small training: about a minute of a processor core for a network and a seed, after some minutes for the activations.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from papers.quarters.efficientnet_lite import pretrained
from papers.quarters.photograph_features import SPLITS, _pixels, photograph_files

SIDE, BATCH, SCALE = 128, 32, 16.0
FROZEN_BLOCKS = {"lite0": 15, "lite2": 20}
"""All blocks but the last one."""
SEEN_CLASSES = 100
NETWORK_RATE, CLASSIFIER_RATE, WEIGHT_DECAY = 5e-4, 5e-3, 1e-4


class LastBlock(nn.Module):
    """The trained part of a network: activations before its last block to pooled features."""

    def __init__(self, network: Any, frozen: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(list(network._blocks)[frozen:])
        self.convolution, self.norm = network._conv_head, network._bn1
        self.activation = network._swish

    def forward(self, activations: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            activations = block(activations)
        pooled: torch.Tensor = self.activation(self.norm(self.convolution(activations))).mean((2, 3))
        return pooled


def frozen_activations(name: str, photographs: Path, file: Path) -> tuple[torch.Tensor, np.ndarray]:
    """Activations of every photograph before the trained part (N x channels x 4 x 4), and class folders."""
    listed = [path for split in SPLITS for path in photograph_files(photographs, split)]
    labels = np.array([path.parent.name for path in listed])
    if not file.exists():
        network = pretrained(name).network.eval()
        parts = []
        with torch.inference_mode():
            for start in range(0, len(listed), BATCH):
                pixels = np.stack([_pixels(path, SIDE) for path in listed[start : start + BATCH]])
                activations = network._swish(network._bn0(network._conv_stem(torch.from_numpy(pixels))))
                for block in network._blocks[: FROZEN_BLOCKS[name]]:
                    activations = block(activations)
                parts.append(activations.half().numpy())
        file.parent.mkdir(parents=True, exist_ok=True)
        partial = file.with_suffix(".partial.npy")
        np.save(partial, np.concatenate(parts))
        partial.replace(file)
    return torch.from_numpy(np.load(file)), labels


def fine_tuned(name: str, activations: torch.Tensor, classes: torch.Tensor, seed: int, epochs: int) -> LastBlock:
    """Trained with a cosine classifier (scale 16), AdamW and a rate that falls to 0 along a cosine."""
    torch.manual_seed(seed)
    model = LastBlock(pretrained(name).network, FROZEN_BLOCKS[name])
    weights = nn.Parameter(torch.randn(SEEN_CLASSES, 1280) / 1280**0.5)
    groups = [{"params": model.parameters(), "lr": NETWORK_RATE}, {"params": [weights], "lr": CLASSIFIER_RATE}]
    optimizer = torch.optim.AdamW(groups, weight_decay=WEIGHT_DECAY)
    steps = epochs * (len(classes) // BATCH)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    model.train()
    for _ in range(epochs):
        order, losses = torch.randperm(len(classes)), []
        for start in range(0, BATCH * (len(classes) // BATCH), BATCH):
            rows = order[start : start + BATCH]
            cosines = functional.normalize(model(activations[rows].float())) @ functional.normalize(weights).T
            loss = functional.cross_entropy(SCALE * cosines, classes[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
        sys.stderr.write(f"{name}, seed {seed}: loss {np.mean(losses):.3f}\n")
    return model.eval()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photographs", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for seed in options.seeds:
        for name in FROZEN_BLOCKS:
            target = options.out / str(seed) / f"{name}-test.npz"
            if target.exists():
                continue
            begin, begin_cpu = time.perf_counter(), time.process_time()
            activations, labels = frozen_activations(name, options.photographs, options.out / f"{name}-frozen.npy")
            numbers = np.unique(labels, return_inverse=True)[1]
            seen = numbers < SEEN_CLASSES
            classes = torch.from_numpy(numbers[seen])
            model = fine_tuned(name, activations[torch.from_numpy(seen)], classes, seed, options.epochs)
            unseen = activations[torch.from_numpy(~seen)]
            with torch.inference_mode():
                rows = [model(unseen[start : start + BATCH].float()).numpy() for start in range(0, len(unseen), BATCH)]
            target.parent.mkdir(parents=True, exist_ok=True)
            partial = target.with_suffix(".partial.npz")
            np.savez(partial, features=np.concatenate(rows), labels=labels[~seen])
            partial.replace(target)
            taken = {"seconds": time.perf_counter() - begin, "processor_seconds": time.process_time() - begin_cpu}
            sys.stderr.write(json.dumps({"network": name, "seed": seed, "epochs": options.epochs} | taken) + "\n")


if __name__ == "__main__":
    main()
