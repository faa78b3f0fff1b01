"""How a version is trained: plain settings, recorded in every version folder and used again by the next update."""

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from holdfast.core.errors import HoldfastError, unknown_name
from holdfast.embedders.pixels import Colour
from holdfast.train.data.sampler import steps_per_epoch
from holdfast.train.encoders import Encoder, Input, Preprocess, VectorInput, backbone_builder
from holdfast.train.encoders.named_backbone import NamedBackbone, named_backbone
from holdfast.train.encoders.preprocess import VECTORS_KIND, input_from_json
from holdfast.train.engine import FitOptions
from holdfast.train.engine.build import BACKBONE_EXTRAS, FILLED_IN, build_method, encoder_maker, fit_options
from holdfast.train.engine.options import OFF_FOR_VECTORS, Precision
from holdfast.train.methods import METHODS, Method, method_class
from holdfast.train.named_code import trusted_code
from holdfast.train.randomness import GENERATOR_LOCK
from holdfast.train.versions.image_defaults import (
    DEFAULT_NETWORK,
    SMALL_SIDE,
    ImageSurvey,
    image_defaults,
    pretrained_fit,
)
from holdfast.train.versions.parent import Parent, describe_model, own_code_of, read_parent, recorded_recipe
from holdfast.train.versions.samples import ImageFiles, Reader, VectorRows

DEFAULT_FIT = FitOptions(epochs=30, batch_size=32, optimizer="adamw", lr=1e-3, schedule="cosine")
"""Few epochs and a learning rate that suits most networks; ``default_settings`` chooses by data and network."""
VECTOR_HEAD = "residual"
HEAD_FIT = FitOptions(epochs=30, batch_size=128, optimizer="sgd", lr=0.05, weight_decay=0.0, schedule="cosine")
"""For a head that begins as the identity: a rate so low that it keeps what the vectors tell of other classes.

Chosen on validation classes of CUB-200-2011 (``bench/vector_head.py``).
"""


@dataclass(frozen=True)
class VersionSettings:
    """How one version of a model is trained.

    method: name of the method (``holdfast.train.methods``).
    method_options: options of the method by name; others take the method's defaults. ``slots`` is set by ``start`` and
        ``update``.
    backbone: name of the network. None: a small one for the first version, and the model's own for the next ones.
    backbone_options: options of the network's builder; also ``weights``, ``weights_prefix``, ``weights_skip`` and
        ``freeze``.
    fit: optimiser, batches, augmentation and seed. Augmentation is switched off for vectors.
    size: side of the square that images are scaled and cut to, in pixels. None: 32, or that of the model.
    colour: "rgb" or "grey". None: "rgb", or that of the model.
    features, labels: names of the two arrays or columns in a file of vectors.
    preprocess: ``mean`` and ``std`` per channel and ``resize`` for images, ``unit`` for vectors. Default: mean and
        standard deviation of the training images.
    buffer_per_class: samples of each class that later versions replay.
    embed_buffer: save replayed and held-out samples with the model, and not only their paths and hashes.
    held_out_share: share of the new samples that is never trained on, from 0 to 0.9.
    held_out_per_class: at most so many held-out samples of each class are saved, to check later versions on.
    title: a title for the record.
    vectors: whether samples are vectors. None: decided by the data or the model.

    >>> from holdfast import FitOptions, VersionSettings
    >>> settings = VersionSettings(backbone="small", fit=FitOptions(epochs=2), size=16, colour="grey")
    >>> settings.method, settings.takes_slots()
    ('simplex_hoc', True)
    """

    method: str = "simplex_hoc"
    method_options: Mapping[str, Any] = field(default_factory=dict)
    backbone: str | None = None
    backbone_options: Mapping[str, Any] = field(default_factory=dict)
    fit: FitOptions = DEFAULT_FIT
    size: int | None = None
    colour: Colour | None = None
    features: str = "features"
    labels: str = "labels"
    preprocess: Mapping[str, Any] = field(default_factory=dict)
    buffer_per_class: int = 20
    embed_buffer: bool = False
    held_out_share: float = 0.2
    held_out_per_class: int = 1000
    title: str = ""
    vectors: bool | None = None

    def __post_init__(self) -> None:
        if self.method not in METHODS:  # a version's folder names its method, and a folder must never name code to run
            raise unknown_name("method", self.method, METHODS)
        for name in ("buffer_per_class", "held_out_per_class"):
            if getattr(self, name) < 0:
                raise HoldfastError(f"{name} must not be negative, got {getattr(self, name)}")
        if not 0 <= self.held_out_share <= 0.9:
            raise HoldfastError(f"held_out_share must lie between 0 and 0.9, got {self.held_out_share:g}")
        if self.size is not None and self.size < 1:
            raise HoldfastError(f"size must be at least 1 pixel, got {self.size}")
        if self.fit.random_reference:
            raise HoldfastError("train.random_reference is for scenarios (holdfast run); leave it out")

    @classmethod
    def from_tables(cls, tables: Mapping[str, Any]) -> "VersionSettings":
        """From the tables of a recipe; keys that are missing take the defaults."""
        method, backbone = dict(tables["method"]), dict(tables.get("backbone") or {})
        data, held_out = tables.get("data", {}), tables.get("held_out", {})
        fit = fit_options(tables.get("train", {}), seed=tables.get("seed", 0))
        numbers = {
            "buffer_per_class": tables.get("buffer", {}).get("per_class"),
            "embed_buffer": tables.get("buffer", {}).get("embed"),
            "held_out_share": held_out.get("share"),
            "held_out_per_class": held_out.get("per_class"),
        }
        return cls(
            method=method.pop("name"),
            method_options=method,
            backbone=backbone.pop("name", None),
            backbone_options=backbone,
            fit=fit,
            preprocess={key: value for key, value in tables.get("preprocess", {}).items() if value is not None},
            title=tables.get("title", ""),
            **{key: data[key] for key in ("size", "colour", "features", "labels") if data.get(key) is not None},
            **{key: value for key, value in numbers.items() if value is not None},
        )

    def tables(self) -> dict[str, Any]:
        """As the tables of a recipe, every default written out; ``recipe.toml`` and ``update.json`` contain them."""
        data: dict[str, Any] = {"features": self.features, "labels": self.labels}
        tables = {
            "title": self.title,
            "seed": self.fit.seed,
            "data": data if self.vectors else {"size": self.size, "colour": self.colour},
            "backbone": self._backbone_table(),
            "method": {"name": self.method, **_with_defaults(method_class(self.method), self.method_options)},
            "train": {key: value for key, value in asdict(self.fit).items() if key != "seed"},
            "preprocess": self.all_preprocess(),
            "buffer": {"per_class": self.buffer_per_class, "embed": self.embed_buffer},
            "held_out": {"share": self.held_out_share, "per_class": self.held_out_per_class},
        }
        plain: dict[str, Any] = json.loads(json.dumps(tables))  # tuples become lists, as in a file
        return plain

    def _backbone_table(self) -> dict[str, Any]:
        if self.backbone is None:
            return dict(self.backbone_options)
        builder = backbone_builder(self.backbone)
        if builder is None:
            return {"name": self.backbone, **self.backbone_options}
        own = {key: value for key, value in self.backbone_options.items() if key not in BACKBONE_EXTRAS}
        extras = {key: value for key, value in self.backbone_options.items() if key in BACKBONE_EXTRAS}
        defaults = _with_defaults(builder, own, leave_out=("name", *BACKBONE_EXTRAS))
        return {"name": self.backbone, **defaults, **extras}

    def all_preprocess(self) -> dict[str, Any]:
        """The preprocessing options, None for those that are not set."""
        return {key: self.preprocess.get(key) for key in ("mean", "std", "resize", "unit")}

    def with_slots(self, slots: int) -> "VersionSettings":
        return replace(self, method_options={**self.method_options, "slots": slots})

    def takes_slots(self) -> bool:
        """Whether the method trains into the slots of a simplex."""
        return "slots" in inspect.signature(method_class(self.method)).parameters

    def has_trained_weights(self) -> bool:
        """Whether the network begins with trained weights."""
        if self.backbone is None or self.vectors:
            return False
        return "weights" in self.backbone_options or named_backbone(self.backbone).input is not None

    def build_method(self) -> Method:
        """A new method, without state."""
        slots = {"slots": 0} if self.takes_slots() and self.method_options.get("slots") is None else {}
        return build_method(self.method, {**self.method_options, **slots})

    def encoder_maker(self, preprocess: Input) -> Callable[[], Encoder]:
        """What builds a new encoder with this backbone and method."""
        return encoder_maker({"name": self.backbone, **self.backbone_options}, preprocess, self.build_method)

    def training_reader(self, preprocess: Input | None) -> Reader:
        """Reads samples as they are trained on. preprocess: that of the model before, if there is one."""
        if self.vectors:
            return VectorRows(self.features, self.labels, preprocess.channels if preprocess else None)
        assert self.size is not None
        assert self.colour is not None
        return ImageFiles(self.size, self.colour)

    def check_reader(self, preprocess: Input) -> Reader:
        """Reads samples as ``Encoder.encode`` takes them."""
        if not isinstance(preprocess, Preprocess):
            return self.training_reader(preprocess)
        return ImageFiles(preprocess.height_width[0], preprocess.colour, preprocess.resize)


def _with_defaults(
    callee: Callable[..., Any], options: Mapping[str, Any], *, leave_out: tuple[str, ...] = ()
) -> dict[str, Any]:
    """``options`` and the defaults of ``callee`` for the others, with the names that recipes use."""
    given = {name.rstrip("_"): value for name, value in options.items()}
    filled: dict[str, Any] = {}
    for name, parameter in inspect.signature(callee).parameters.items():
        if name in FILLED_IN:
            filled[name] = None
        elif name not in leave_out and parameter.default is not parameter.empty:
            filled[name.rstrip("_")] = parameter.default
    return {**filled, **given}


def default_settings(
    *,
    vectors: bool,
    images: ImageSurvey | None = None,
    network: str | NamedBackbone | None = None,
    precision: Precision = "fp32",
) -> VersionSettings:
    """The settings of a first version if none are given.

    The method is d-Simplex-HOC on a network that starts from random weights, distillation on one with trained weights,
    and Cosine-HOC on vectors. A simplex would project the features of a trained network, and training on few classes
    then loses what they tell of others (``bench/pretrained_method.py``).

    vectors: whether the samples are vectors.
    images: number and size of the images, which decide the size that they are scaled to and the epochs.
    network: name of another network, or what ``named_backbone`` found; the training options suit it.
    precision: of networks for images with trained weights (``mixed_precision``).

    >>> from holdfast.train.versions.settings import default_settings
    >>> settings = default_settings(vectors=True)
    >>> settings.method, settings.backbone
    ('cosine_hoc', 'residual')
    """
    network = named_backbone(network) if isinstance(network, str) else network
    if vectors and (network is None or network.name == VECTOR_HEAD):
        head = VersionSettings("cosine_hoc", backbone=VECTOR_HEAD, fit=HEAD_FIT, preprocess={"unit": True})
        return start_settings(replace(head, title="Own vectors"), vectors)
    simplex = VersionSettings("simplex_hoc", {"lambda": 0.3})
    if vectors:
        assert network is not None
        settings = replace(simplex, title="Own vectors", backbone=network.name, backbone_options=network.options)
        return start_settings(settings, vectors)
    trained = network is not None and network.input is not None
    settings = VersionSettings("distillation", {"softmax": "cosine"}) if trained else simplex
    defaults = vars(image_defaults(images, network, precision=precision))
    return start_settings(replace(settings, title="Own images", **defaults), vectors)


def start_settings(settings: VersionSettings, vectors: bool) -> VersionSettings:
    """``settings`` of a first version with everything decided but the slots."""
    settings = _for_kind(settings, vectors)
    if settings.backbone is None:
        settings = replace(settings, backbone="mlp" if vectors else DEFAULT_NETWORK)
    return settings if vectors else _with_image_format(settings, SMALL_SIDE, "rgb")


def update_settings(
    model: Path, settings: VersionSettings | None, replace_with: str | None
) -> tuple[Parent, VersionSettings]:
    """The model, and the settings of the version after it. Settings that contradict the model are refused by name.

    settings: None for those that the model was trained with.
    replace_with: the name of another backbone, a file of its weights, or a model folder.
    """
    description = describe_model(model)
    recorded = recorded_recipe(model)
    named = None if replace_with is None or is_model(replace_with) else named_backbone(replace_with)
    if settings is None:
        tables = recorded_tables(model)
        settings = VersionSettings.from_tables(tables if named is None else tables_with_network(tables, named))
    settings = with_network(settings, named)
    unnamed = [] if settings.backbone is not None else sorted(settings.backbone_options.keys() - {"freeze"})
    if unnamed:
        raise HoldfastError(f"backbone.{unnamed[0]}: needs backbone.name, the network that it is an option of")
    settings = _completed(settings, description, model)
    _build_own_code(description, settings, model)
    parent = read_parent(model)
    method = recorded.get("method") if recorded else None
    trained_by = method.get("name") if isinstance(method, Mapping) else None
    _refuse_contradictions(settings, parent, trained_by, replaced=replace_with is not None)
    return parent, settings


def with_network(settings: VersionSettings, named: NamedBackbone | None) -> VersionSettings:
    """``settings`` with another network; unchanged if they name it already, or if there is none."""
    if named is None or settings.backbone == named.name:
        return settings
    return replace(settings, backbone=named.name, backbone_options=named.options)


TRAINING_OF_NETWORK = (
    "epochs", "batch_size", "optimizer", "lr", "lr_groups", "momentum", "weight_decay", "decay_norms", "schedule",
    "milestones", "decay", "final_lr", "warmup",
)  # fmt: skip
"""Options of training that suit a network; the others belong to the data, which stay as they are in an update."""


def tables_with_network(tables: Mapping[str, Any], named: NamedBackbone) -> dict[str, Any]:
    """The recorded recipe of a model with another network and, if it has trained weights, the training that suits it.

    Sizes and crops of the images are those of the model: old and new network get the same images.
    """
    train = dict(tables.get("train", {}))
    if named.input is not None:
        suits = asdict(pretrained_fit())
        train |= {key: suits[key] for key in TRAINING_OF_NETWORK}
    return {**tables, "backbone": named.table, "train": train}


def is_model(name: str) -> bool:
    """Whether ``name`` is a model folder; otherwise it names a backbone."""
    return (Path(name) / "config.json").is_file()


def recorded_tables(model: Path) -> dict[str, Any]:
    """The tables of the recipe that ``model`` was trained by, as ``VersionSettings.from_tables`` reads them.

    Without ``method.slots``: slots may have been added since.
    """
    recorded = recorded_recipe(model)
    if recorded is None:
        raise HoldfastError(
            f"{model}: no recipe of holdfast start, update or run is with it; give one by --recipe (settings in Python)"
        )
    tables = version_tables(recorded)
    if isinstance(tables.get("method"), dict):
        tables["method"] = {key: value for key, value in tables["method"].items() if key != "slots"}
    return tables


def trained_steps(model: Path) -> int | None:
    """Steps that a model of images was trained for; None if it takes vectors or if they are not recorded."""
    description = describe_model(model)
    info = description.get("info")
    data = info.get("data") if isinstance(info, Mapping) else None
    if recorded_recipe(model) is None or not isinstance(data, Mapping) or takes_vectors(description):
        return None
    fit = VersionSettings.from_tables(recorded_tables(model)).fit
    return fit.epochs * steps_per_epoch(data["images"], data.get("replayed", 0), fit.batch_size)


def version_tables(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """A recipe of ``holdfast run`` as one of ``holdfast start``: training and replay without the data.

    Size and colour are kept if its training set is a folder or a CSV file, and the columns' names if it is vectors.
    Other recipes are copied unchanged.
    """
    if "scenario" not in recipe:
        return dict(recipe)
    scenario, data = recipe["scenario"], recipe.get("data")
    if not isinstance(scenario, Mapping) or scenario.get("name") != "cl2r":
        raise HoldfastError("scenario.name: only a run of cl2r trains one model after another; leave the table out")
    train = data.get("train") if isinstance(data, Mapping) else None
    own = train if isinstance(train, Mapping) and train.get("name") in ("folder", "csv", "vectors") else {}
    tables = {key: value for key, value in recipe.items() if key not in ("scenario", "data", "evaluation")}
    tables["data"] = {key: own[key] for key in ("size", "colour", "features", "labels") if key in own}
    if isinstance(tables.get("train"), Mapping):  # ``random_reference`` is for the first model of a scenario
        tables["train"] = {key: value for key, value in tables["train"].items() if key != "random_reference"}
    if "buffer_per_class" in scenario:
        tables["buffer"] = {"per_class": scenario["buffer_per_class"]}
    return tables


def takes_vectors(description: Mapping[str, Any]) -> bool:
    """Whether the model of this ``config.json`` takes vectors."""
    preprocess = description["preprocess"]
    return isinstance(preprocess, Mapping) and preprocess.get("kind") == VECTORS_KIND


def _for_kind(settings: VersionSettings, vectors: bool) -> VersionSettings:
    fit = replace(settings.fit, **OFF_FOR_VECTORS) if vectors else settings.fit  # type: ignore[arg-type]
    if not vectors and settings.preprocess.get("unit") is not None:
        raise HoldfastError("preprocess.unit is for vectors, and these are images; leave it out")
    return replace(settings, fit=fit, vectors=vectors)


def _with_image_format(settings: VersionSettings, size: int, colour: Colour) -> VersionSettings:
    return replace(settings, size=settings.size or size, colour=settings.colour or colour)


def _completed(settings: VersionSettings, description: Mapping[str, Any], model: Path) -> VersionSettings:
    """``settings`` with size, colour and slots of the model if they are not set."""
    settings = _for_kind(settings, takes_vectors(description))
    if not settings.vectors:
        preprocess = description["preprocess"]
        own = preprocess if isinstance(preprocess, Mapping) and "size" in preprocess else {}
        size = SMALL_SIDE if settings.fit.resized_crop or not own else own["size"][0]
        settings = _with_image_format(settings, size, own.get("colour", "rgb"))
    slots = description.get("info", {}).get("slots")
    if not settings.takes_slots() or not isinstance(slots, Mapping):
        return settings
    count = slots.get("num_slots", 0)
    if description.get("dim") != count - 1:
        return settings
    own_slots = settings.method_options.get("slots") or count
    if own_slots != count:
        raise HoldfastError(
            f"method.slots: {own_slots}, but {model} has {count}; leave it out, or first "
            f"holdfast slots grow {model} --to {own_slots}"
        )
    return settings.with_slots(count)


def _build_own_code(description: Mapping[str, Any], settings: VersionSettings, model: Path) -> None:
    """Build the network that the caller names, so that the model can be rebuilt with it.

    Code that only the model folder names is never run.
    """
    code = own_code_of(description)
    if code is None or code in trusted_code():
        return
    if settings.backbone != code:
        raise HoldfastError(
            f"{model}: its network is code of your own, {code}, which no model folder may name; give --backbone "
            f'{code}, or --recipe with backbone.name = "{code}" (backbone="{code}" in Python); reports and galleries '
            f"take holdfast --code {code}"
        )
    _built_spec(settings, input_from_json(description["preprocess"]))


def _built_spec(settings: VersionSettings, preprocess: Any) -> Any:
    with GENERATOR_LOCK:
        encoder = settings.encoder_maker(preprocess)()
    return getattr(encoder.backbone, "backbone_spec", None)


def _refuse_contradictions(
    settings: VersionSettings, parent: Parent, trained_by: str | None, *, replaced: bool
) -> None:
    method, folder = settings.method, parent.folder
    if trained_by is not None and method != trained_by:
        raise HoldfastError(f"method.name: {method}, but {folder} was trained with {trained_by}")
    fresh = settings.build_method()
    if fresh.num_slots is None and parent.encoder.dim != fresh.feature_dim(parent.encoder.feature_dim):
        raise HoldfastError(f"method.name: {method} has no slots, but {folder} was trained into those of a simplex")
    if fresh.num_slots is not None and fresh.num_slots != parent.encoder.dim + 1:
        raise HoldfastError(f"method.name: {method} needs slots, but {folder} was trained without any")
    if settings.backbone is not None and not replaced:
        _refuse_other_network(settings, parent)
    own, wanted = parent.preprocess, settings.all_preprocess()
    if isinstance(own, VectorInput):
        if wanted["unit"] not in (None, own.unit):
            unit, other = ("true", "false") if own.unit else ("false", "true")
            raise HoldfastError(f"preprocess.unit: {other}, but {folder} has {unit}")
        return
    assert isinstance(own, Preprocess)
    for key, value in (("mean", list(own.mean)), ("std", list(own.std))):
        if wanted[key] is not None and list(wanted[key]) != value:
            raise HoldfastError(f"preprocess.{key}: {wanted[key]}, but {folder} has {value}")
    if wanted["resize"] not in (None, own.resize):
        raise HoldfastError(f"preprocess.resize: {wanted['resize']}, but {folder} has {own.resize or 'none'}")
    if settings.colour != own.colour:
        raise HoldfastError(f"data.colour: {settings.colour}, but {folder} takes {own.colour} images")
    trained = settings.fit.resized_crop or settings.size
    if trained != own.height_width[0]:
        raise HoldfastError(f"data.size: training would see {trained} pixels a side, but {folder} takes "
                            f"{own.height_width[0]}")  # fmt: skip


def _refuse_other_network(settings: VersionSettings, parent: Parent) -> None:
    spec = getattr(parent.encoder.backbone, "backbone_spec", None)
    own = spec["name"] if isinstance(spec, Mapping) else type(parent.encoder.backbone).__name__
    advice = "leave the backbone out, or replace the network with --backbone (replace_with in Python)"
    assert settings.backbone is not None
    if settings.backbone != own:
        raise HoldfastError(
            f"backbone.name: {settings.backbone}, but the network of {parent.folder} is {own}; {advice}"
        )
    if settings.backbone_options.get("weights") is not None:
        raise HoldfastError(f"backbone.weights: {parent.folder} brings its own weights; {advice}")
    if not own.startswith(("hf:", "timm:")) and _built_spec(settings, parent.preprocess) != spec:
        raise HoldfastError(f"backbone: options other than those of {parent.folder}; {advice}")
