"""What a user may name as a network: a backbone by name, or a file of weights whose network is recognised.

The result has the options that load trained weights, and says how images are prepared for them.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.core.storage import read_json
from holdfast.embedders.model_folder import CONFIG_FILE, FORMAT, WEIGHTS_FILE
from holdfast.embedders.pixels import Colour
from holdfast.train.encoders.backbones import BACKBONES, backbone_builder, import_timm, is_own_code, named_options
from holdfast.train.encoders.hf import hub_settings
from holdfast.train.encoders.hf_cache import cached_snapshot
from holdfast.train.encoders.initialise import without_memory
from holdfast.train.encoders.preprocess import Preprocess, input_from_json
from holdfast.train.encoders.weights import COUNTER, SUFFIXES, read_weights

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
IMAGENET_SIDE = 224
CROP_SHARE = 0.875
"""Side of the centre that is cut out, divided by the side that images are scaled to: 224 of 256, as usual."""

_PREFIXES = ("", "module.", "backbone.", "model.", "encoder.", "module.backbone.", "module.encoder.", "net.")
_ANY_SIZE = ("resnet18", "resnet50", "resnet32", "small_resnet")


@dataclass(frozen=True)
class NetworkInput:
    """How images are prepared for a network with trained weights.

    side: side of the images in pixels.
    mean, std: per channel; None: those of the training images.
    scaled_to: shorter side of an image before the centre is cut out, in pixels; None: 8/7 of ``side``.
    colour: "rgb" or "grey".
    """

    side: int = IMAGENET_SIDE
    mean: tuple[float, ...] | None = IMAGENET_MEAN
    std: tuple[float, ...] | None = IMAGENET_STD
    scaled_to: int | None = None
    colour: Colour = "rgb"

    @property
    def resize(self) -> int:
        """The side that images are scaled to before the centre is cut out."""
        return self.scaled_to or round(self.side / CROP_SHARE)

    @classmethod
    def of(cls, own: Preprocess, where: str) -> "NetworkInput":
        """That of a network's own ``Preprocess``. ``where`` names the network in errors."""
        height, width = own.height_width
        if height != width:
            raise HoldfastError(f"{where}: takes images of {height} x {width}; only square images are read from files")
        if own.interpolation != "bilinear":
            raise HoldfastError(f"{where}: scales images by {own.interpolation}; training from files is bilinear only")
        return cls(height, own.mean, own.std, own.resize, own.colour)


@dataclass(frozen=True)
class NamedBackbone:
    """A network that a user named.

    name: for ``build_backbone``.
    options: for it, and ``weights``, ``weights_prefix`` and ``weights_skip`` if a file has the weights.
    input: how images are prepared for its trained weights; None if it starts from random weights.
    """

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    input: NetworkInput | None = None

    @property
    def table(self) -> dict[str, Any]:
        """As the table ``backbone`` of a recipe."""
        return {"name": self.name, **self.options}


def is_weights_file(text: str) -> bool:
    """Whether ``text`` is written as a file of weights, and not as the name of a network."""
    return text.endswith(SUFFIXES) and not text.startswith(("hf:", "timm:"))


def named_backbone(text: str, weights: str | Path | None = None) -> NamedBackbone:
    """The network that ``text`` names.

    text: a name for ``build_backbone``, or a file of weights: of a Holdfast model, of timm or transformers with its
        ``config.json`` beside it, or of a network in ``holdfast ls backbones``, recognised by names and shapes.
    weights: a file of weights for a network that is named.

    ``hf:`` and ``timm:`` come with their trained weights. The user's own function may have an attribute ``preprocess``
    (a ``Preprocess``): its network then counts as one with trained weights, for images prepared so.

    >>> from holdfast.train.encoders.named_backbone import named_backbone
    >>> named = named_backbone("small")
    >>> named.name, named.input is None  # random weights, so there is no size that they expect
    ('small', True)
    """
    if weights is not None:
        if is_weights_file(text):
            raise HoldfastError(f"two files of weights, {text} and {weights}; name the network of one of them")
        file = Path(weights).expanduser()
        named = _recognised_for(text, file, _shapes(file)) if text in BACKBONES else None
        return named if named is not None else NamedBackbone(text, {"weights": str(file)}, _input_of(text))
    if is_weights_file(text):
        return _recognised(Path(text).expanduser())
    options = {"pretrained": True} if text.startswith("timm:") else {}
    return NamedBackbone(text, options, _input_of(text) if _has_weights(text) else None)


def same_network(description: Mapping[str, Any], named: NamedBackbone) -> bool:
    """Whether ``named`` is the network that a model's ``config.json`` describes, without other weights."""
    spec = description.get("backbone")
    if not isinstance(spec, Mapping) or "weights" in named.options:
        return False
    source = spec.get("source")
    names = (spec.get("name"), source.get("name") if isinstance(source, Mapping) else None)
    return named.name in names


def _has_weights(name: str) -> bool:
    return name.startswith(("hf:", "timm:")) or (is_own_code(name) and _own_preprocess(name) is not None)


def _own_preprocess(name: str) -> Preprocess | None:
    found = getattr(backbone_builder(name), "preprocess", None)
    if found is not None and not isinstance(found, Preprocess):
        raise HoldfastError(f"backbone {name}: its attribute preprocess must be a holdfast.Preprocess")
    return found


def _input_of(name: str) -> NetworkInput:
    if name.startswith("hf:"):
        return _hf_input(name.removeprefix("hf:"))
    if name.startswith("timm:"):
        return _timm_input(name.removeprefix("timm:"))
    if is_own_code(name) and (own := _own_preprocess(name)) is not None:
        return NetworkInput.of(own, f"backbone {name}")
    return NetworkInput()


def _hf_input(name: str) -> NetworkInput:
    """From the files of a transformers model in a folder, in the hub's cache or on the hub; else 224 pixels.

    The image processor's crop counts before the configuration's size: DINOv2 is configured for 518 pixels and used at
    224.
    """
    local = Path(name).expanduser()
    folder = local if local.is_dir() else cached_snapshot(name) or hub_settings(name)
    if folder is None:
        return NetworkInput(mean=None, std=None)
    config, processor = (_json_object(folder / file) for file in (CONFIG_FILE, "preprocessor_config.json"))
    sides = (_side(one) for one in (processor.get("crop_size"), processor.get("size"), config.get("image_size")))
    mean, std = (processor.get(key) for key in ("image_mean", "image_std"))
    known = isinstance(mean, list) and isinstance(std, list)
    return NetworkInput(
        next((side for side in sides if side is not None), IMAGENET_SIDE),
        tuple(mean) if known else None,  # type: ignore[arg-type]
        tuple(std) if known else None,  # type: ignore[arg-type]
    )


def _side(size: Any) -> int | None:
    """One side of a size as transformers writes it: a number, a list, or an object of height and width."""
    if isinstance(size, Mapping):
        size = size.get("height", size.get("shortest_edge"))
    if isinstance(size, list) and size:
        size = size[0]
    return size if isinstance(size, int) and size > 0 else None


def _timm_input(name: str) -> NetworkInput:
    """From timm's own table of pre-trained weights; ImageNet's if it does not say."""
    timm = import_timm(name)
    try:
        found = timm.get_pretrained_cfg(name)
    except Exception as error:  # timm raises anything for an unknown name
        raise HoldfastError(f"backbone timm:{name}: {error}") from error
    if found is None:
        return NetworkInput()
    size = getattr(found, "input_size", None) or (3, IMAGENET_SIDE, IMAGENET_SIDE)
    mean, std = getattr(found, "mean", None) or IMAGENET_MEAN, getattr(found, "std", None) or IMAGENET_STD
    return NetworkInput(int(size[-1]), tuple(mean), tuple(std))


def _recognised(file: Path) -> NamedBackbone:
    if not file.is_file():
        raise HoldfastError(f"{file}: no such file")
    config = _json_object(file.parent / CONFIG_FILE)
    if config.get("format") == FORMAT and file.name == WEIGHTS_FILE:
        return _of_holdfast_model(file, config)
    if isinstance(config.get("architecture"), str):  # as timm writes it
        return _of_timm_file(file, config)
    if isinstance(config.get("model_type"), str):
        return NamedBackbone(f"hf:{file.parent}", {}, _hf_input(str(file.parent)))
    shapes = _shapes(file)
    for name in _ANY_SIZE:
        found = _recognised_for(name, file, shapes)
        if found is not None:
            return found
    raise HoldfastError(
        f"{file}: its network is not recognised (known: {', '.join(_ANY_SIZE)}, or a config.json beside it); name the "
        "network as --backbone and the file as --set backbone.weights=FILE"
    )


def _of_holdfast_model(file: Path, config: Mapping[str, Any]) -> NamedBackbone:
    spec = config.get("backbone")
    name, own_options = ("", {}) if spec is None else named_options(spec)
    if name not in BACKBONES:
        raise HoldfastError(f"{file}: a model of Holdfast with code of others; name its folder as --backbone of update")
    own = input_from_json(config.get("preprocess"))
    if not isinstance(own, Preprocess):
        raise HoldfastError(
            f"{file}: a model of vectors, and only weights of image networks can be named; update --from it"
        )
    weights = {"weights": str(file), "weights_prefix": "backbone."}
    return NamedBackbone(name, {**own_options, **weights}, NetworkInput.of(own, str(file)))


def _of_timm_file(file: Path, config: Mapping[str, Any]) -> NamedBackbone:
    about = config.get("pretrained_cfg")
    about = about if isinstance(about, Mapping) else {}
    classifier = about.get("classifier", "fc")
    heads = classifier if isinstance(classifier, list) else [classifier]
    present = {name.rpartition(".")[0] for name in read_weights(file)}
    skip = [f"{head}." for head in heads if head in present]
    size = about.get("input_size") or (3, IMAGENET_SIDE, IMAGENET_SIDE)
    mean, std = about.get("mean") or IMAGENET_MEAN, about.get("std") or IMAGENET_STD
    options = {"weights": str(file), **({"weights_skip": skip} if skip else {})}
    return NamedBackbone(f"timm:{config['architecture']}", options, NetworkInput(size[-1], tuple(mean), tuple(std)))


def _shapes(file: Path) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in read_weights(file).items()}


def _recognised_for(name: str, file: Path, shapes: Mapping[str, tuple[int, ...]]) -> NamedBackbone | None:
    """``name`` with the weights of ``file``, if all its weights are there below one prefix; other names are skipped.

    shapes: of the tensors in the file.
    """
    if _needs_options(BACKBONES[name]):
        return None
    with without_memory():
        expected = {key: tuple(value.shape) for key, value in BACKBONES[name]().state_dict().items()}
    for prefix in _PREFIXES:
        inside = {key.removeprefix(prefix): shape for key, shape in shapes.items() if key.startswith(prefix)}
        if all(inside.get(key) == shape for key, shape in expected.items() if not key.endswith(COUNTER)):
            skip = sorted({key.split(".")[0] + "." for key in inside.keys() - expected.keys()})
            if any(key.startswith(tuple(skip)) for key in expected) and skip:
                continue
            options = {"weights": str(file)} | ({"weights_prefix": prefix} if prefix else {})
            return NamedBackbone(name, options | ({"weights_skip": skip} if skip else {}), _plain_input(name))
    return None


def _needs_options(builder: Callable[..., Any]) -> bool:
    """Whether a network cannot be built by its name alone, such as one for vectors, which needs their size."""
    return any(one.default is one.empty for one in inspect.signature(builder).parameters.values())


def _plain_input(name: str) -> NetworkInput:
    """For weights of which only names and shapes are known: ImageNet's, or 32 pixels for networks of small images."""
    small = name in ("resnet32", "small_resnet")
    return NetworkInput(32, None, None) if small else NetworkInput()


def _json_object(file: Path) -> dict[str, Any]:
    try:
        found = read_json(file)
    except HoldfastError:
        return {}
    return found if isinstance(found, dict) else {}
