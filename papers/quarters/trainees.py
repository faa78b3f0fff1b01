"""What the study trains, a head on the vectors of a frozen network or the whole network, and the settings of each.

Every strategy of a study trains the same network for the same number of epochs on the same items.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from holdfast import Encoder, FitOptions, Preprocess, VectorInput, build_backbone
from holdfast.train.methods import Method, method_class
from holdfast.train.versions.version_defaults import HEAD_FIT, VECTOR_HEAD, mixed_precision, pretrained_fit
from papers.quarters.study_data import CROP, SIDE, StudyData

RAW, PLAIN, OURS, DISTILLATION, HOC, CVS, FAN = "raw", "plain", "ours", "distillation", "hoc", "cvs", "fan"
TURNED, PLAIN_RANDOM, DISTILLATION_RANDOM = "turned", "plain-random", "distillation-random"
LIKE = {FAN: DISTILLATION, PLAIN_RANDOM: PLAIN, DISTILLATION_RANDOM: DISTILLATION}
"""Trainings that differ from another in one part, and have the settings that were chosen for that other."""
OWN_DISTILLATION = "papers.quarters.cosine_distillation:CosineDistillation"
MAP_WIDTH = 1280
"""Hidden width of FAN's map. FAN's default, 16 times the feature size, takes minutes per update on a CPU."""


@dataclass(frozen=True)
class Settings:
    """Settings of one training.

    method: name of the method.
    options: options of the method that differ from its defaults.
    lr: learning rate.
    """

    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    lr: float = HEAD_FIT.lr

    def to_json(self) -> dict[str, Any]:
        return {"method": self.method, "options": dict(self.options), "lr": self.lr}

    def build_method(self, width: int) -> Method:
        return method_class(self.method)(**self.method_options(width))

    def method_options(self, width: int) -> dict[str, Any]:
        """The options. Without slots a simplex has the dimension of the vectors: one slot more than they are wide."""
        slots = self.slots(width)
        return {**self.options, **({} if slots is None else {"slots": slots})}

    def slots(self, width: int) -> int | None:
        """Number of vertices; None for a method without a simplex."""
        return self.options.get("slots", width + 1) if self.method.startswith("simplex") else None

    @property
    def keeps_features(self) -> bool:
        """Whether a layer that begins as the identity takes the place of a random projection."""
        return self.options.get("layer") == "identity"


def derived(training: str, settings: Settings) -> Settings:
    """The settings of a training of ``LIKE``. FAN trains its networks as distillation does, and then a map."""
    part = {"map_width": MAP_WIDTH} if training == FAN else {"first_rows": "random"}
    return replace(settings, options={**settings.options, **part})


@dataclass(frozen=True)
class Trainee:
    """What is trained.

    name: in messages.
    tries: training -> the settings that are tried on validation classes; one that is not searched has one.
    tries_file: the record of the tries, in the folder of results.
    fit_options: options of training with some settings and a seed on a device.
    new_backbone: a network to begin with, for a width of vectors and some settings.
    raw_backbone: the network without any training.
    preprocess: the encoder's input, for a width of vectors.
    width: size of the features, for some items.
    """

    name: str
    tries: Mapping[str, tuple[Settings, ...]]
    tries_file: str
    fit_options: Callable[[Settings, int, torch.device], FitOptions]
    new_backbone: Callable[[int, Settings], torch.nn.Module]
    raw_backbone: Callable[[int], torch.nn.Module]
    preprocess: Callable[[int], VectorInput | Preprocess]
    width: Callable[[StudyData], int]

    def encoder(self, data: StudyData, settings: Settings) -> Encoder:
        """A model to train."""
        width = self.width(data)
        method = settings.build_method(width)
        backbone = self.new_backbone(width, settings)
        return Encoder.for_method(method, backbone=backbone, preprocess=self.preprocess(width))

    def raw_encoder(self, data: StudyData) -> Encoder:
        """The model without any training."""
        width = self.width(data)
        return Encoder(self.raw_backbone(width), preprocess=self.preprocess(width)).eval()


def _tries(method: str, rates: Sequence[float], *options: Mapping[str, Any]) -> tuple[Settings, ...]:
    return tuple(Settings(method, given, rate) for rate in rates for given in options)


PLAIN_OPTIONS = tuple({"contrast": 0.0, "scale": scale} for scale in (16.0, 32.0))
DISTILLATION_OPTIONS = tuple({"scale": 16.0, "features_weight": weight} for weight in (1.0, 5.0))
HOC_OPTIONS = tuple({"lambda_": weight, "rho": 10.0, "slots": 1024} for weight in (0.1, 0.3))
"""As the paper has it for networks that are replaced: a projection that begins at random, raw logits, 1,024 slots."""
TURNED_OPTIONS = tuple(
    {"lambda_": weight, "length": 16.0, "first_length": 16.0, "placing": "means", "layer": "identity"}
    for weight in (0.5, 0.3)
)
CVS_OPTIONS = tuple({"scale": 16.0, "coherence": pull, "centre": centre} for pull, centre in ((1.0, 0.1), (10.0, 1.0)))

HEAD_TRIES = {
    RAW: (Settings("none"),),
    PLAIN: _tries("cosine_hoc", (0.05, 0.1), *PLAIN_OPTIONS),
    OURS: (Settings("cosine_hoc", {"contrast": 1.0, "rho": 5.0, "scale": 16.0}),),
    DISTILLATION: _tries(OWN_DISTILLATION, (0.05, 0.1), *DISTILLATION_OPTIONS),
    HOC: _tries("simplex_hoc", (0.05, 0.1), *HOC_OPTIONS),
    TURNED: _tries("simplex_hoc", (0.05, 0.1), *TURNED_OPTIONS),
    CVS: _tries("cvs", (0.02, 0.05), *CVS_OPTIONS),
}
"""Four tries each. Ours has the defaults of ``holdfast update`` alone."""

NETWORK_RATE = pretrained_fit().lr
"""Rate of the classifier; the network has a tenth of it."""
NETWORK_TRIES = {
    RAW: (Settings("none"),),
    PLAIN: _tries("cosine_hoc", (NETWORK_RATE,), PLAIN_OPTIONS[0]),
    OURS: _tries("cosine_hoc", (NETWORK_RATE,), {"contrast": 1.0, "rho": 5.0, "scale": 16.0}),
    DISTILLATION: _tries(OWN_DISTILLATION, (NETWORK_RATE,), DISTILLATION_OPTIONS[0]),
    HOC: _tries("simplex_hoc", (NETWORK_RATE,), HOC_OPTIONS[0]),
    TURNED: _tries("simplex_hoc", (NETWORK_RATE,), TURNED_OPTIONS[0]),
    CVS: _tries("cvs", (NETWORK_RATE,), CVS_OPTIONS[0]),
}
"""Nothing is searched: the rate of ``holdfast start`` and ``update``, the options that were chosen for heads, those of
the paper for its d-Simplex-HOC, and those of a pilot for the turned one."""

NETWORK_EPOCHS = 20
NETWORK_WIDTH = 1280
"""Size of the features of lite0 and lite2."""
LITE0, LITE2 = (f"papers.quarters.efficientnet_lite:{name}" for name in ("lite0", "lite2"))
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def _head_options(settings: Settings, seed: int, device: torch.device) -> FitOptions:
    """Those of ``holdfast start`` and ``update`` on vectors, with the rate of the settings."""
    return FitOptions(
        epochs=HEAD_FIT.epochs, batch_size=HEAD_FIT.batch_size, optimizer=HEAD_FIT.optimizer, lr=settings.lr,
        weight_decay=HEAD_FIT.weight_decay, schedule=HEAD_FIT.schedule, crop_padding=0, flip=False, seed=seed,
    )  # fmt: skip


def _network_options(settings: Settings, seed: int, device: torch.device) -> FitOptions:
    """Those of ``holdfast start`` and ``update`` for networks with trained weights, with the rate of the settings.

    A layer that begins as the identity has the low rate of the network.
    """
    usual = pretrained_fit(mixed_precision(device), resized_crop=CROP)
    groups = {**(usual.lr_groups or {}), **({"projection": 0.1} if settings.keeps_features else {})}
    return replace(usual, epochs=NETWORK_EPOCHS, lr=settings.lr, lr_groups=groups, seed=seed)


def _head_backbone(width: int, settings: Settings) -> torch.nn.Module:
    """x + W x, which begins as the identity. A simplex has its own layer, so nothing comes before that."""
    return build_backbone("identity" if settings.slots(width) else VECTOR_HEAD, in_channels=width)


HEAD = Trainee(
    name="a head on the vectors of a frozen network",
    tries=HEAD_TRIES,
    tries_file="tries.json",
    fit_options=_head_options,
    new_backbone=_head_backbone,
    raw_backbone=lambda width: build_backbone("identity", in_channels=width),
    preprocess=lambda width: VectorInput(width, unit=True),
    width=lambda data: int(data.items.shape[1]),
)
NETWORK = Trainee(
    name="the whole network",
    tries=NETWORK_TRIES,
    tries_file="network-tries.json",
    fit_options=_network_options,
    new_backbone=lambda width, settings: build_backbone(LITE0),
    raw_backbone=lambda width: build_backbone(LITE0),
    preprocess=lambda width: Preprocess(CROP, MEAN, STD, resize=SIDE),
    width=lambda data: NETWORK_WIDTH,
)


def trainee_of(data: StudyData) -> Trainee:
    """A head for vectors, the network for photographs."""
    return HEAD if data.holds_vectors else NETWORK
