"""How a version is trained: the model of its recipe, recorded in its folder and used again by the next update."""

import inspect
from collections.abc import Callable
from typing import Any, Self

from pydantic import Field, model_validator

from holdfast.core.errors import HoldfastError, unknown_name
from holdfast.embedders.pixels import Colour
from holdfast.train.encoders import Encoder, Input, Preprocess
from holdfast.train.encoders.named_backbone import named_backbone
from holdfast.train.engine import FitOptions
from holdfast.train.engine.build import build_method, encoder_maker, fit_options
from holdfast.train.experiments.schema import BackboneExtras, RecipeTable, TrainingTables, backbone_section, validated
from holdfast.train.methods import METHODS, Method, method_class
from holdfast.train.versions.samples import ImageFiles, Reader, VectorRows


class SamplesTable(RecipeTable):
    """size: side of the square that images are scaled and cut to, in pixels; default: chosen by the images, or that of
    the model before.

    colour: "rgb" (default, unless the model before takes others) or "grey".
    features, labels: names of the two arrays or columns in a file of vectors; default: "features" and "labels".
    """

    size: int | None = Field(default=None, ge=1)
    colour: Colour | None = None
    features: str | None = None
    labels: str | None = None

    def of_kind(self, vectors: bool) -> Self:
        """With the defaults for vectors or images. Values for the other kind are refused."""
        others, what = (("size", "colour"), "images, and these are vectors") if vectors else (
            ("features", "labels"), "vectors, and these are images"
        )  # fmt: skip
        for name in others:
            if getattr(self, name) is not None:
                raise HoldfastError(f"data.{name} is for {what}; leave it out")
        names = {"features": self.features or "features", "labels": self.labels or "labels"} if vectors else {}
        return self.model_copy(update=names)


class BufferTable(RecipeTable):
    """per_class: samples of each class that later versions replay.
    embed: save replayed and held-out samples with the model, and not only their paths and hashes.
    """

    per_class: int = Field(default=20, ge=0)
    embed: bool = False


class HeldOutTable(RecipeTable):
    """share: of the new samples, never trained on. per_class: at most so many later versions are checked on."""

    share: float = Field(default=0.2, ge=0, le=0.9)
    per_class: int = Field(default=1000, ge=0)


class VersionSettings(TrainingTables):
    """How one version of a model is trained: the tables of a recipe, as ``--set`` names them.

    title: a title for the record.
    seed: of weights, batches and augmentation.
    method: ``name`` (``holdfast ls methods``) and the method's options. ``slots`` is set by ``start`` and ``update``.
    methods: options of further methods, used if another method is set by name.
    backbone: ``name`` and the options of the network, ``weights``, ``weights_prefix``, ``weights_skip`` and ``freeze``.
        Default: a small network for the first version, and the model's own for the next ones.
    train: fields of ``FitOptions`` without the seed. Augmentation is switched off for vectors.
    preprocess: ``mean`` and ``std`` per channel and ``resize`` for images, ``unit`` for vectors. Default: mean and
        standard deviation of the training images.
    data: how samples are read (``size``, ``colour``; ``features``, ``labels``).
    buffer: what later versions replay (``per_class``, ``embed``).
    held_out: what is never trained on (``share``, ``per_class``).
    vectors: whether samples are vectors. None: decided by the data or the model; defaults are then filled in.

    >>> from holdfast import VersionSettings
    >>> settings = VersionSettings(backbone={"name": "small"}, train={"epochs": 2}, data={"size": 16, "colour": "grey"})
    >>> settings.method["name"], settings.takes_slots(), settings.held_out.share
    ('simplex_hoc', True, 0.2)
    """

    method: dict[str, Any] = Field(default_factory=lambda: {"name": "simplex_hoc"})
    data: SamplesTable = SamplesTable()
    buffer: BufferTable = BufferTable()
    held_out: HeldOutTable = HeldOutTable()
    vectors: bool | None = Field(default=None, exclude=True)

    @model_validator(mode="after")
    def _fill_in(self) -> Self:
        """Check what depends on other libraries and functions; write out every default if the kind is known."""
        name = self.method.get("name")
        if isinstance(name, str) and name not in METHODS:  # the record must never name code to run
            raise HoldfastError(f"method.name: {unknown_name('method', name, METHODS)}")
        tables = self.checked(vectors=bool(self.vectors))
        if fit_options(tables["train"], seed=self.seed).random_reference:
            raise HoldfastError("train.random_reference is for scenarios (holdfast run); leave it out")
        filled: dict[str, Any] = {"backbone": _backbone_table(self.backbone or {})}
        if self.vectors is not None:
            if self.preprocess.unit is not None and not self.vectors:
                raise HoldfastError("preprocess.unit is for vectors, and these are images; leave it out")
            filled |= {"method": tables["method"], "train": tables["train"], "data": self.data.of_kind(self.vectors)}
        for key, value in filled.items():
            object.__setattr__(self, key, value)
        return self

    def tables(self) -> dict[str, Any]:
        """As the tables of a recipe; ``recipe.toml`` and ``update.json`` contain them."""
        tables = self.model_dump(mode="json")
        if self.vectors is not None:
            names = ("features", "labels") if self.vectors else ("size", "colour")
            tables["data"] = {name: tables["data"][name] for name in names}
        return tables

    def changed(self, **tables: Any) -> "VersionSettings":
        """With other tables or values, checked again."""
        return VersionSettings(**{**self.tables(), "vectors": self.vectors, **tables})

    def with_epochs(self, epochs: int) -> "VersionSettings":
        return self.changed(train={**self.train, "epochs": epochs})

    def with_slots(self, slots: int) -> "VersionSettings":
        return self.changed(method={**self.method, "slots": slots})

    @property
    def fit(self) -> FitOptions:
        return fit_options(self.train, seed=self.seed)

    @property
    def method_options(self) -> dict[str, Any]:
        return {key: value for key, value in self.method.items() if key != "name"}

    @property
    def network(self) -> str | None:
        """The name of the backbone, if there is one."""
        return (self.backbone or {}).get("name")

    def takes_slots(self) -> bool:
        """Whether the method trains into the slots of a simplex."""
        return "slots" in inspect.signature(method_class(self.method["name"])).parameters

    def has_trained_weights(self) -> bool:
        """Whether the network begins with trained weights."""
        if self.network is None or self.vectors:
            return False
        return "weights" in (self.backbone or {}) or named_backbone(self.network).input is not None

    def build_method(self) -> Method:
        """A new method, without state."""
        slots = {"slots": 0} if self.takes_slots() and self.method.get("slots") is None else {}
        return build_method(self.method["name"], {**self.method_options, **slots})

    def encoder_maker(self, preprocess: Input) -> Callable[[], Encoder]:
        """What builds a new encoder with this backbone and method."""
        return encoder_maker(self.backbone or {}, preprocess, self.build_method)

    def training_reader(self, preprocess: Input | None) -> Reader:
        """Reads samples as they are trained on. preprocess: that of the model before, if there is one."""
        if self.vectors:
            assert self.data.features is not None
            assert self.data.labels is not None
            return VectorRows(self.data.features, self.data.labels, preprocess.channels if preprocess else None)
        return ImageFiles(self.data.size or 0, self.data.colour or "rgb")

    def check_reader(self, preprocess: Input) -> Reader:
        """Reads samples as ``Encoder.encode`` takes them."""
        if not isinstance(preprocess, Preprocess):
            return self.training_reader(preprocess)
        return ImageFiles(preprocess.height_width[0], preprocess.colour, preprocess.resize)


def _backbone_table(table: dict[str, Any]) -> dict[str, Any]:
    """Checked, with the defaults of the network. Without a name it may be empty or freeze parts of the model before."""
    if not table:
        return {}
    if table.keys() == {"freeze"}:
        return {"freeze": validated(BackboneExtras, table, "backbone")["freeze"]}
    return backbone_section(table)
