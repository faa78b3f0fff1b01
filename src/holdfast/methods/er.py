"""Experience replay: the baseline that does nothing for compatibility."""

from typing import final

from torch import Tensor

from holdfast.losses import cross_entropy
from holdfast.methods.classifier import GrowingClassifier
from holdfast.methods.interface import Batch, Method, Progress, TaskView


@final
class ER(Method):
    """Cross-entropy over all classes seen so far, on new images and the buffer, with a classifier that grows.

    Features are the backbone's own; the classifier is linear, without bias and without scale.
    """

    def __init__(self) -> None:
        super().__init__()
        self.classifier = GrowingClassifier()

    def feature_dim(self, backbone_dim: int) -> int:
        return backbone_dim

    def begin(self, task: TaskView, dim: int) -> None:
        self.classifier.grow(task.num_seen, dim)

    def loss(
        self,
        z: Tensor,
        batch: Batch,
        *,
        z_old: Tensor | None = None,
        z_view: Tensor | None = None,
        progress: Progress,
    ) -> dict[str, Tensor]:
        return {"ce": cross_entropy(self.classifier(z), batch.labels)}
