"""``Encoder``: a network, its projection and its preprocess, trained, saved and loaded together.

A saved encoder is a folder with ``config.json`` and ``model.safetensors``.
"""

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from holdfast.core.checksums import sha256_of
from holdfast.core.environment import DISTRIBUTION, version
from holdfast.core.errors import HoldfastError, first_line
from holdfast.core.storage import check_replaceable, replacing_folder, write_json
from holdfast.embedders.model_folder import (
    CONFIG_FILE,
    FORMAT,
    FORMAT_VERSION,
    MOST_DIM,
    WEIGHTS_FILE,
    Readout,
    checked_readout,
    read_model_config,
)
from holdfast.train.encoders.backbones import rebuild_backbone
from holdfast.train.encoders.encode_loop import batch_size_for, compute_features, input_reader
from holdfast.train.encoders.identity_layer import known_layer, make_layer
from holdfast.train.encoders.initialise import at_most_parameters, without_memory
from holdfast.train.encoders.preprocess import ImagesLike, Input, input_from_json
from holdfast.train.encoders.weights import check_weights_fit
from holdfast.train.geometry.simplex import Layer
from holdfast.train.randomness import GENERATOR_LOCK
from holdfast.train.tensor_files import read_torch, write_torch

MODEL_FILES = (CONFIG_FILE, WEIGHTS_FILE)
ALL_PARTS = "*"


class HasFeatureDim(Protocol):
    """The part of ``Method`` that an encoder needs: the feature size that the method trains, and the layer to it."""

    @property
    def layer(self) -> Layer: ...

    def feature_dim(self, backbone_dim: int) -> int: ...


class Encoder(nn.Module):
    """Computes features of size ``dim`` of images or vectors.

    backbone: any network N x C x H x W -> N x F, or N x D -> N x F for vectors.
    dim: size of the features. If it is not F, a linear projection without bias is added. None is F.
    preprocess: how ``encode`` makes raw images or vectors ready for the network; None if callers do it.
    feature_dim: F; None takes the backbone's attribute ``feature_dim``.
    info: JSON values to save with the model, such as its class slots.
    readout: the feature that ``encode`` returns, which is stored and compared: "simplex" (default) is the projected
        feature that the method trains, "backbone" the one before the projection. Without a projection both are the
        same. It is saved with the model and does not change training.
    layer: "projection" (default), which is left out if ``dim`` is F. "identity": a linear layer from F to at least F
        numbers that begins as the identity; ``fit`` centres its input before the first training.

    >>> import torch
    >>> from holdfast import Encoder
    >>> backbone = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 8 * 8, 16))
    >>> encoder = Encoder(backbone, dim=4, feature_dim=16)
    >>> features = encoder.encode(torch.zeros(2, 3, 8, 8))
    >>> features.shape, features.dtype
    (torch.Size([2, 4]), torch.float32)
    """

    def __init__(
        self,
        backbone: nn.Module,
        dim: int | None = None,
        *,
        preprocess: Input | None = None,
        feature_dim: int | None = None,
        info: dict[str, Any] | None = None,
        readout: Readout = "simplex",
        layer: Layer = "projection",
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.readout = checked_readout(readout)
        self.feature_dim = _feature_dim(backbone, feature_dim)
        self.dim = self.feature_dim if dim is None else dim
        if self.dim < 1:
            raise HoldfastError(f"encoder: dim must be at least 1, got {dim}")
        if self.dim > MOST_DIM:
            raise HoldfastError(f"encoder: dim must be at most {MOST_DIM}, got {dim}")
        self.layer = known_layer(layer)
        self.projection = make_layer(layer, self.feature_dim, self.dim)
        self.preprocess = preprocess
        self.frozen: tuple[str, ...] = ()
        try:
            self.info: dict[str, Any] = json.loads(json.dumps(info or {}, allow_nan=False))
        except (TypeError, ValueError) as error:
            raise HoldfastError(f"encoder: info must be plain JSON ({error})") from error

    @classmethod
    def for_method(
        cls,
        method: HasFeatureDim,
        *,
        backbone: nn.Module,
        preprocess: Input | None = None,
        feature_dim: int | None = None,
    ) -> "Encoder":
        """An encoder with the feature size and the layer that ``method`` needs.

        method: any ``Method``, for example ``SimplexHOC(slots=100)``, which needs 99 dimensions.
        backbone, preprocess, feature_dim: as for ``Encoder``.
        """
        size = _feature_dim(backbone, feature_dim)
        dim = method.feature_dim(size)
        return cls(backbone, dim, preprocess=preprocess, feature_dim=size, layer=method.layer)

    @property
    def embedding_network(self) -> nn.Module:
        """The network of the features that are stored and compared; see ``readout``."""
        return self.backbone if self.readout == "backbone" else self

    @property
    def embedding_dim(self) -> int:
        """Size of the features that are stored and compared; see ``readout``."""
        return self.feature_dim if self.readout == "backbone" else self.dim

    def forward(self, x: Tensor) -> Tensor:
        """Raw features z, N x dim, not normalised; under autocast in its dtype. They are trained, for any readout."""
        h = self.backbone(x)
        if h.ndim != 2 or h.shape[1] != self.feature_dim:
            raise HoldfastError(f"the backbone returned {tuple(h.shape)}, expected N x {self.feature_dim} features")
        return h if self.projection is None else self.projection(h)

    def freeze(self, names: Sequence[str]) -> None:
        """Exclude parts of the backbone from training. Saved with the model; ``freeze([])`` unfreezes everything.

        names: names of modules or parameters, such as ``layer1`` or ``layer1.0.bn1``; ``*`` is the whole backbone.
        Frozen modules stay in eval mode, so that their batch norm statistics do not change.
        """
        parts = _frozen_parts(self.backbone, names)
        for parameter in self.backbone.parameters():
            parameter.requires_grad_(True)
        for part in parts:
            part.requires_grad_(False)
        self.frozen = tuple(names)
        self.train(self.training)

    def train(self, mode: bool = True) -> "Encoder":
        """As ``nn.Module.train``, but frozen modules stay in eval mode."""
        super().train(mode)
        for part in _frozen_parts(self.backbone, self.frozen):
            if isinstance(part, nn.Module):
                part.eval()
        return self

    def encode(
        self,
        images: ImagesLike | Tensor,
        *,
        batch_size: int | None = None,
        device: str | torch.device | None = None,
    ) -> Tensor:
        """Unit features, float32 N x embedding_dim on the CPU, computed in eval mode; a zero vector stays zero.

        images: anything that the preprocess accepts, or a preprocessed float tensor N x C x H x W.
        batch_size: images at a time; None chooses it by device and image size.
        device: the encoder is moved there and stays there; None is the device of its weights.

        On a GPU torch's convolutions use TF32 by default, and its rounding depends on the batch size. Set
        ``torch.backends.cudnn.allow_tf32 = False`` to avoid that.
        """
        if batch_size is not None and batch_size < 1:
            raise HoldfastError(f"encode: batch_size must be at least 1, got {batch_size}")
        preprocess = self.preprocess
        ready = isinstance(images, Tensor) and images.is_floating_point()
        if preprocess is None:
            if not ready or images.ndim not in (2, 4):  # type: ignore[union-attr]
                raise HoldfastError(
                    "encode: this encoder has no preprocess; give it one, or pass float tensors N x C x H x W or N x D"
                )
        else:
            ready = ready and images.ndim == 4 and not preprocess.takes_vectors  # type: ignore[union-attr]
        if device is not None:
            self.to(device)
        here = next(self.parameters(), torch.empty(0)).device
        if ready or preprocess is None:
            items: Any = images
            shape, read = items.shape[1:], items.__getitem__
        else:
            items = preprocess.as_sequence(images)
            shape, read = preprocess.input_shape, input_reader(preprocess, items, here)
        if not len(items):
            return torch.empty(0, self.embedding_dim)
        return compute_features(
            self.embedding_network,
            len(items),
            read,
            device=here,
            batch_size=batch_size or batch_size_for(here, shape),
            finish=lambda z: F.normalize(z, dim=1),
            collect_on=torch.device("cpu"),
        )

    def save_pretrained(self, folder: str | Path) -> None:
        """Write ``config.json`` and ``model.safetensors``; an older model is replaced in one step.

        Refused: a folder with other files in it, such as one that ``start`` or ``update`` wrote.
        """
        check_replaceable(Path(folder), MODEL_FILES)
        with replacing_folder(Path(folder)) as temporary:
            self.write_into(temporary)

    def write_into(self, folder: str | Path) -> None:
        """Write the files into an existing folder, for callers that replace a larger folder in one step."""
        description = {
            "backbone": getattr(self.backbone, "backbone_spec", None),
            "backbone_class": type(self.backbone).__name__,
            "dim": self.dim,
            "feature_dim": self.feature_dim,
            "preprocess": None if self.preprocess is None else self.preprocess.to_json(),
            "frozen": list(self.frozen),
            "readout": self.readout,
            **({} if self.layer == "projection" else {"layer": self.layer}),
            "info": self.info,
        }
        _write_model_files(Path(folder), description, self.state_dict())

    @classmethod
    def from_pretrained(
        cls, folder: str | Path, *, backbone: nn.Module | None = None, device: str | torch.device = "cpu"
    ) -> "Encoder":
        """Load a saved encoder, in eval mode, offline. The state of the random generator does not change.

        folder: written by ``save_pretrained``.
        backbone: a network of the same architecture; needed only if ``build_backbone`` did not build the saved one.
        device: device of the loaded encoder.
        """
        folder = Path(folder)
        description, tensors = read_model_files(folder)
        stored = description["preprocess"]
        try:
            preprocess = None if stored is None else input_from_json(stored)
        except HoldfastError as error:
            raise HoldfastError(f"{folder / CONFIG_FILE}: {error}") from error

        def build(network: nn.Module) -> "Encoder":
            return cls(
                network,
                description["dim"],
                preprocess=preprocess,
                feature_dim=description["feature_dim"],
                info=description["info"],
                readout=description.get("readout", "simplex"),
                layer=description.get("layer", "projection"),
            )

        with GENERATOR_LOCK, torch.random.fork_rng(devices=[]), at_most_parameters(1000 + 10 * len(tensors)):
            if backbone is None:
                _check_sizes(lambda: build(_build_network(folder, description)), tensors, folder)
            encoder = build(_build_network(folder, description) if backbone is None else backbone)
        _load_weights(encoder, tensors, folder)
        if description.get("frozen"):
            encoder.freeze(description["frozen"])
        return encoder.to(device).eval()


def _feature_dim(backbone: nn.Module, given: int | None) -> int:
    own = getattr(backbone, "feature_dim", None)
    if own is None and given is None:
        name = type(backbone).__name__
        raise HoldfastError(f"{name} has no attribute feature_dim; pass Encoder(..., feature_dim=) its output size")
    if own is not None and given is not None and own != given:
        raise HoldfastError(f"the backbone's features have size {own}, but feature_dim={given} was given")
    size = own if given is None else given
    if not isinstance(size, int) or size < 1:
        raise HoldfastError(f"feature_dim must be a positive whole number, got {size!r}")
    return size


def _write_model_files(folder: Path, description: Mapping[str, Any], state: Mapping[str, Any]) -> None:
    """Write the weights first and then the description with their hash, so that a described model has its weights."""
    for name, value in state.items():
        if not isinstance(value, Tensor):
            raise HoldfastError(f"cannot save {name}: {type(value).__name__} in a state dict is not a tensor")
    # torch.compile adds a prefix to names; a compiled model is saved like any other.
    tensors = {name.replace("_orig_mod.", ""): value for name, value in state.items()}
    write_torch(folder / WEIGHTS_FILE, tensors, {"format": "pt"})
    head = {"format": FORMAT, "format_version": FORMAT_VERSION, "holdfast_version": version(DISTRIBUTION)}
    write_json(folder / CONFIG_FILE, {**head, **description, "weights_sha256": sha256_of(folder / WEIGHTS_FILE)})


def read_model_files(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The description (config.json) and the weights of a saved encoder; refused if they do not belong together."""
    description = read_model_config(folder)
    try:
        known_layer(description.get("layer", "projection"))
    except HoldfastError as error:
        raise HoldfastError(f"{folder / CONFIG_FILE}: {error}") from error
    tensors, _ = read_torch(folder / WEIGHTS_FILE)
    return description, tensors


def _build_network(folder: Path, description: Mapping[str, Any]) -> nn.Module:
    """The network of a description, with random weights."""
    if description["backbone"] is None:
        kind = description.get("backbone_class", "network")
        raise HoldfastError(
            f"{folder}: its backbone is your own {kind}; pass from_pretrained(..., backbone=) a new one"
        )
    try:
        return rebuild_backbone(description["backbone"])
    except HoldfastError as error:
        raise HoldfastError(f"{folder / CONFIG_FILE}: {error}") from error
    except Exception as error:  # networks raise anything for options of a wrong type or size
        raise HoldfastError(f"{folder / CONFIG_FILE}: its backbone cannot be built ({first_line(error)})") from error


def _check_sizes(build: Callable[[], nn.Module], tensors: Mapping[str, Tensor], folder: Path) -> None:
    """Refuse a description with other sizes than the weights, before memory is allocated for it.

    A few networks of transformers and timm cannot be built without memory. They are checked after they are built.
    """
    try:
        with without_memory(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*to a meta parameter.*")  # code that loads weights itself
            expected = build().state_dict()
    except HoldfastError as error:
        if isinstance(error.__cause__, HoldfastError) or error.__cause__ is None:
            raise
        return
    except Exception:
        return
    check_weights_fit(folder / WEIGHTS_FILE, tensors, expected, "network")


def _load_weights(encoder: nn.Module, tensors: Mapping[str, Tensor], folder: Path) -> None:
    """Copy weights into the encoder and convert it to their floating dtype. Names and shapes must match exactly."""
    check_weights_fit(folder / WEIGHTS_FILE, tensors, encoder.state_dict(), "network")
    dtypes = {value.dtype for value in tensors.values() if value.is_floating_point()}
    if len(dtypes) == 1:
        encoder.to(dtypes.pop())
    with torch.no_grad():
        encoder.load_state_dict(dict(tensors))


def _frozen_parts(network: nn.Module, names: Sequence[str]) -> list[nn.Module | nn.Parameter]:
    """The module or parameter of each name; ``*`` is the network itself. Unknown names are refused.

    A name is a whole path: ``layer1`` includes everything below it, but not ``layer10``.
    """
    if isinstance(names, str):
        raise HoldfastError(f"freeze takes a list of names: [{names!r}], not {names!r}")
    if not names:
        return []
    modules, parameters = dict(network.named_modules()), dict(network.named_parameters())
    parts: list[nn.Module | nn.Parameter] = []
    for name in names:
        if name == ALL_PARTS:
            parts.append(network)
        elif name and (name in modules or name in parameters):
            parts.append(modules[name] if name in modules else parameters[name])
        else:
            top = ", ".join(child for child, _ in network.named_children())
            raise HoldfastError(f"freeze: the backbone has no part {name!r}; its first level: {top}, or * for all")
    return parts
