"""Scalars for TensorBoard, in the run folder."""

from collections.abc import Mapping

from holdfast.errors import HoldfastError, how_to_install
from holdfast.sinks.interface import LoggedRun


class TensorBoard:
    """Writes ``RUN/tensorboard``; another sitting of the run adds a file there."""

    def __init__(self, run: LoggedRun) -> None:
        self._folder = run.folder.path / "tensorboard"

    @staticmethod
    def require() -> None:
        try:
            import torch.utils.tensorboard  # noqa: F401
        except ImportError as error:
            raise HoldfastError(f"TensorBoard is not installed; {how_to_install('tensorboard')}") from error

    def open(self) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(self._folder))

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def summary(self, values: Mapping[str, float], step: int) -> None:
        self.scalars(values, step)

    def close(self, finished: bool) -> None:
        self._writer.close()
