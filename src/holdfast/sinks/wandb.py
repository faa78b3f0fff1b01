"""A run on Weights & Biases."""

import os
import uuid
from collections.abc import Mapping

from holdfast.errors import HoldfastError, how_to_install
from holdfast.sinks.interface import LoggedRun


class WandB:
    """One W&B run per run folder, in the project ``$WANDB_PROJECT`` or holdfast; ``WANDB_MODE=offline`` sends nothing.

    The id is ours and is kept before W&B hears of it, so a run killed at any moment goes on as the same one.
    """

    def __init__(self, run: LoggedRun) -> None:
        self._about = run

    @staticmethod
    def require() -> None:
        try:
            import wandb  # noqa: F401
        except ImportError as error:
            raise HoldfastError(f"W&B is not installed; {how_to_install('wandb')}") from error

    def open(self) -> None:
        import wandb

        number = self._about.known_as("wandb") or uuid.uuid4().hex
        self._about.keep_id("wandb", number)
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "holdfast"),
            id=number,
            name=self._about.name,
            resume="allow",
            reinit="create_new",  # runs of a sweep are threads of one process
            config=self._about.flat_settings,
            dir=str(self._about.folder.path),
            settings=wandb.Settings(console="off", silent=True, save_code=False),
        )
        # Steps by our own count: W&B's never goes back, and a resumed run may repeat an epoch that a kill undid.
        self._run.define_metric("step", hidden=True)
        self._run.define_metric("*", step_metric="step")

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        self._run.log({**values, "step": step})

    def summary(self, values: Mapping[str, float], step: int) -> None:
        self._run.summary.update(dict(values))

    def close(self, finished: bool) -> None:
        self._run.finish(exit_code=0 if finished else 1)
