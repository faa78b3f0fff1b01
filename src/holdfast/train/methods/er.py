"""Experience replay: the baseline without any compatibility term."""

from typing import final

from torch import Tensor

from holdfast.train.losses import cross_entropy, info_nce
from holdfast.train.methods.classifiers import FirstRows, GrowingClassifier, begin_at_means
from holdfast.train.methods.interface import Batch, Method, Progress, Survey, TaskView
from holdfast.train.methods.option_checks import check_choice, check_not_negative, check_positive


@final
class ER(Method):
    """Cross-entropy over all classes seen so far, on new images and the buffer, with a classifier that grows.

    The features are those of the backbone. The classifier is linear, without bias and scale.

    view_weight: weight of InfoNCE between two views of each image, for an ablation; 0 (default) leaves it out.
    rho: factor of the cosines in that term.
    first_rows: how the classifier's rows of new classes begin: "random" (default), or at the "means" of their features.
        "means" suits networks with trained weights, whose features random rows would pull elsewhere.
    """

    def __init__(self, *, view_weight: float = 0.0, rho: float = 5.0, first_rows: FirstRows = "random") -> None:
        super().__init__()
        check_positive(rho=rho)
        check_not_negative(view_weight=view_weight)
        check_choice(FirstRows, first_rows=first_rows)
        self.first_rows = first_rows
        self.view_weight = view_weight
        self.rho = rho
        self.reads_view = view_weight > 0
        self.classifier = GrowingClassifier()

    def begin(self, task: TaskView, dim: int) -> None:
        self.classifier.begin(task, dim)

    def prepare(self, task: TaskView, survey: Survey) -> None:
        if self.first_rows == "means":
            begin_at_means(self.classifier, task, survey, keep_length=True)

    def loss(
        self,
        z: Tensor,
        batch: Batch,
        *,
        z_old: Tensor | None = None,
        z_view: Tensor | None = None,
        z_kept: Tensor | None = None,
        progress: Progress,
    ) -> dict[str, Tensor]:
        terms = {"ce": cross_entropy(self.classifier(z), batch.labels)}
        if self.reads_view and z_view is not None:
            terms["view"] = self.view_weight * info_nce(z, z_view, batch.labels, rho=self.rho, through_both=True)
        return terms
