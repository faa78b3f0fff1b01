"""Seeds derived from a run's seed, and the lock around torch's global generator."""

import threading

import numpy as np

GENERATOR_LOCK = threading.RLock()
"""Hold it to seed or use torch's global generator, for example to build a network: runs in threads share it."""


def derived_seed(seed: int, task: int, purpose: str) -> int:
    """A separate seed for each task and purpose, so that one stream of random numbers never shifts another."""
    return int(np.random.SeedSequence([seed, task, *purpose.encode()]).generate_state(1)[0])
