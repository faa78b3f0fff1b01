"""Where random numbers come from: a seed for each purpose, and one lock around torch's global generator."""

import threading

import numpy as np

GLOBAL_GENERATOR = threading.RLock()
"""Held by whoever seeds torch's global generator or builds a network from it: runs side by side in threads share it."""


def derived_seed(seed: int, task: int, purpose: str) -> int:
    """A seed of its own for each purpose in each task, so that one stream never shifts another."""
    return int(np.random.SeedSequence([seed, task, *purpose.encode()]).generate_state(1)[0])
