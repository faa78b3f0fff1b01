"""Cosine-HOC: a cosine classifier that grows, and HOC's contrast to the previous model; for a head on vectors."""

from typing import ClassVar, final

from torch import Tensor

from holdfast.train.losses import Negatives, cosine_logits, cross_entropy, info_nce
from holdfast.train.methods.classifiers import FirstRows, GrowingClassifier, begin_at_means
from holdfast.train.methods.interface import Batch, Method, OldFeatures, Progress, Survey, TaskView
from holdfast.train.methods.option_checks import check_choice, check_not_negative, check_positive


@final
class CosineHOC(Method):
    """Ours: CE over scale x cosine + contrast x NCE to the previous model (Eq. 4); CE alone without such a model.

    Without a simplex the features keep the backbone's size and directions. On vectors of a pre-trained network, with
    the backbone ``residual``, training therefore begins with what the vectors already tell apart.

    scale: factor of the cosines in CE.
    contrast: weight of NCE.
    rho: factor of the cosines in NCE.
    negatives: the denominator of NCE, see ``info_nce``.
    first_rows: how the classifier's rows of new classes begin: at the "means" of their features (default), so that the
        first steps do not pull features to random directions, or "random".
    """

    ours: ClassVar[bool] = True
    old_features: OldFeatures = "all"

    def __init__(
        self,
        *,
        scale: float = 16.0,
        contrast: float = 1.0,
        rho: float = 5.0,
        negatives: Negatives = "authors",
        first_rows: FirstRows = "means",
    ) -> None:
        super().__init__()
        check_positive(scale=scale, rho=rho)
        check_not_negative(contrast=contrast)
        check_choice(Negatives, negatives=negatives)
        check_choice(FirstRows, first_rows=first_rows)
        self.first_rows = first_rows
        self.scale = scale
        self.contrast = contrast
        self.rho = rho
        self.negatives = negatives
        self.classifier = GrowingClassifier()

    def begin(self, task: TaskView, dim: int) -> None:
        self.classifier.begin(task, dim)

    def prepare(self, task: TaskView, survey: Survey) -> None:
        if self.first_rows == "means":
            begin_at_means(self.classifier, task, survey)

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
        terms = {"ce": cross_entropy(cosine_logits(z, self.classifier.weight, scale=self.scale), batch.labels)}
        if z_old is not None:
            nce = info_nce(z, z_old, batch.labels, rho=self.rho, negatives=self.negatives)
            terms["nce"] = self.contrast * nce
        return terms
