"""A network and its projection: what is trained, saved, and asked for features.

An encoder on disk: ``config.json`` says what it is, ``model.safetensors`` holds its weights; a card for people.

Which parts of a network a name means, for those that are to stay as they are.
"""

import json
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from holdfast.checksums import refuse_broken_seal, sha256_of
from holdfast.encoders.backbones import rebuild_backbone
from holdfast.encoders.encode_loop import batch_size_for, compute_features, input_reader
from holdfast.encoders.model_card import write_card
from holdfast.encoders.preprocess import Images, Preprocess, VectorInput, input_from_json
from holdfast.encoders.weights import refuse_misfit
from holdfast.errors import HoldfastError
from holdfast.randomness import GLOBAL_GENERATOR
from holdfast.storage import read_json, read_tensors, replacing_folder, write_json, write_tensors


class Encoder(nn.Module):
    """Images -> features of size ``dim``: any network N x C x H x W -> N x F, then a bias-free projection if dim != F.

    Or vectors: a network N x D -> N x F, with a ``VectorInput`` for its preprocess.

    backbone: a network; its F is its attribute ``feature_dim``, or given here.
    dim: size of the features; None keeps the backbone's, without a projection.
    preprocess: what ``encode`` does to images first.
    info: anything in JSON to keep with the model, such as its class slots.
    """

    def __init__(
        self,
        backbone: nn.Module,
        dim: int | None = None,
        *,
        preprocess: Preprocess | VectorInput | None = None,
        feature_dim: int | None = None,
        info: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.feature_dim = _feature_dim(backbone, feature_dim)
        self.dim = self.feature_dim if dim is None else dim
        if self.dim < 1:
            raise HoldfastError(f"encoder: dim must be at least 1, got {dim}")
        self.projection = None if self.dim == self.feature_dim else nn.Linear(self.feature_dim, self.dim, bias=False)
        self.preprocess = preprocess
        self.frozen: tuple[str, ...] = ()
        try:
            self.info: dict[str, Any] = json.loads(json.dumps(info or {}, allow_nan=False))
        except (TypeError, ValueError) as error:
            raise HoldfastError(f"encoder: info must be plain JSON ({error})") from error

    def forward(self, x: Tensor) -> Tensor:
        """Raw features z, N x dim: neither normalised nor cast, so under autocast they have its dtype."""
        h = self.backbone(x)
        if h.ndim != 2 or h.shape[1] != self.feature_dim:
            raise HoldfastError(f"the backbone gave {tuple(h.shape)}, expected N x {self.feature_dim} features")
        return h if self.projection is None else self.projection(h)

    def freeze(self, names: Sequence[str]) -> None:
        """Keep parts of the backbone as they are: ``layer1``, ``layer1.0.bn1``, one parameter, or ``*`` for all of it.

        A part named stays in eval mode as well, so that its batch norms' statistics stand still. Saved with the model;
        ``freeze([])`` lets everything train again.
        """
        parts = frozen_parts(self.backbone, names)
        for parameter in self.backbone.parameters():
            parameter.requires_grad_(True)
        for part in parts:
            part.requires_grad_(False)
        self.frozen = tuple(names)
        self.train(self.training)

    def train(self, mode: bool = True) -> "Encoder":
        """As ``nn.Module.train``, but what is frozen stays in eval mode."""
        super().train(mode)
        for part in frozen_parts(self.backbone, self.frozen):
            if isinstance(part, nn.Module):
                part.eval()
        return self

    def encode(
        self,
        images: Images | Tensor,
        *,
        batch_size: int | None = None,
        device: str | torch.device | None = None,
    ) -> Tensor:
        """Unit features, float32 N x dim on the CPU, with the network in eval mode; a zero vector stays zero.

        images: all that the preprocess takes, or a float tensor N x C x H x W that is already preprocessed.
        batch_size: images at a time; None takes as many as suit the device.
        device: move the encoder there first, and leave it there; None stays where the weights are.
        On a GPU torch's convolutions use TF32 by default, and the rounding of TF32 depends on the batch size. Set
        ``torch.backends.cudnn.allow_tf32 = False`` for features that do not.
        """
        if batch_size is not None and batch_size < 1:
            raise HoldfastError(f"encode: batch_size must be at least 1, got {batch_size}")
        ready = (
            isinstance(images, Tensor)
            and images.is_floating_point()
            and not isinstance(self.preprocess, VectorInput)
            and images.ndim in ((2, 4) if self.preprocess is None else (4,))
        )
        if not ready and self.preprocess is None:
            raise HoldfastError(
                "encode: this encoder has no preprocess; give it one, or pass float tensors N x C x H x W or N x D"
            )
        if device is not None:
            self.to(device)
        here = next(self.parameters(), torch.empty(0)).device
        if ready or self.preprocess is None:
            many: Any = images
            shape, read = many.shape[1:], many.__getitem__
        else:
            many = self.preprocess.many(images)
            shape, read = self.preprocess.input_shape, input_reader(self.preprocess, many, here)
        if not len(many):
            return torch.empty(0, self.dim)
        return compute_features(
            self,
            len(many),
            read,
            device=here,
            batch_size=batch_size or batch_size_for(here, shape),
            finish=lambda z: F.normalize(z, dim=1),
            collect_on=torch.device("cpu"),
        )

    def save_pretrained(self, folder: str | Path) -> None:
        """Write ``config.json``, ``model.safetensors`` and a card as one folder; an older one is replaced at once."""
        with replacing_folder(Path(folder)) as temporary:
            self.write_into(temporary)

    def write_into(self, folder: str | Path) -> None:
        """Write the files into a folder that exists, for callers who make a larger folder atomic themselves."""
        description = {
            "backbone": getattr(self.backbone, "backbone_spec", None),
            "backbone_class": type(self.backbone).__name__,
            "dim": self.dim,
            "feature_dim": self.feature_dim,
            "preprocess": None if self.preprocess is None else self.preprocess.to_json(),
            "frozen": list(self.frozen),
            "info": self.info,
        }
        write(Path(folder), description, self.state_dict())

    @classmethod
    def from_pretrained(
        cls, folder: str | Path, *, backbone: nn.Module | None = None, device: str | torch.device = "cpu"
    ) -> "Encoder":
        """Rebuild a saved encoder, in eval mode, offline. ``backbone`` is needed for a network Holdfast did not build.

        The state of the random generator is left as it was.
        """
        folder = Path(folder)
        description, tensors = read(folder)
        with GLOBAL_GENERATOR, torch.random.fork_rng(devices=[]):
            network = network_of(folder, description) if backbone is None else backbone
            stored = description["preprocess"]
            encoder = cls(
                network,
                description["dim"],
                preprocess=None if stored is None else input_from_json(stored),
                feature_dim=description["feature_dim"],
                info=description["info"],
            )
        load(encoder, tensors, folder)
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


FORMAT = "holdfast-encoder"
FORMAT_VERSION = 1
CONFIG = "config.json"
WEIGHTS = "model.safetensors"

_REQUIRED = ("backbone", "dim", "feature_dim", "preprocess", "info", "weights_sha256")


def write(folder: Path, description: Mapping[str, Any], state: Mapping[str, Any]) -> None:
    """Write weights, then the description with their hash: a description is never there before its weights."""
    for name, value in state.items():
        if not isinstance(value, Tensor):
            raise HoldfastError(f"cannot save {name}: {type(value).__name__} in a state dict is not a tensor")
    # torch.compile puts a prefix on the names of what it wraps; the saved model is the same, compiled or not.
    tensors = {name.replace("_orig_mod.", ""): value for name, value in state.items()}
    write_tensors(folder / WEIGHTS, tensors, {"format": "pt"})
    head = {"format": FORMAT, "format_version": FORMAT_VERSION, "holdfast_version": _version()}
    weights = sha256_of(folder / WEIGHTS)
    write_card(folder, description, weights)
    write_json(folder / CONFIG, {**head, **description, "weights_sha256": weights})


def read(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The description and the weights, checked to belong together."""
    if not folder.is_dir():
        raise HoldfastError(f"{folder}: no such folder; an encoder is a folder with {CONFIG} and {WEIGHTS}")
    description = read_json(folder / CONFIG)
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        raise HoldfastError(f"{folder / CONFIG}: does not describe a Holdfast encoder")
    version = description.get("format_version")
    if version != FORMAT_VERSION:
        raise HoldfastError(f"{folder / CONFIG}: format version {version!r}, this Holdfast reads {FORMAT_VERSION}")
    absent = [key for key in _REQUIRED if key not in description]
    if absent:
        raise HoldfastError(f"{folder / CONFIG}: lacks {', '.join(absent)}")
    if not isinstance(description["dim"], int) or not isinstance(description["info"], dict):
        raise HoldfastError(f"{folder / CONFIG}: dim must be a whole number and info an object")
    frozen = description.get("frozen", [])
    if not isinstance(frozen, list) or not all(isinstance(name, str) for name in frozen):
        raise HoldfastError(f"{folder / CONFIG}: frozen must be a list of names, found {frozen!r}")
    tensors, _ = read_tensors(folder / WEIGHTS)
    if sha256_of(folder / WEIGHTS) != description["weights_sha256"]:
        raise HoldfastError(f"{folder / WEIGHTS}: not the weights {CONFIG} was written for (sha256 differs)")
    refuse_broken_seal(folder, only=(CONFIG,))
    return description, tensors


def network_of(folder: Path, description: Mapping[str, Any]) -> nn.Module:
    """The network a description names, with random weights."""
    if description["backbone"] is None:
        kind = description.get("backbone_class", "network")
        raise HoldfastError(
            f"{folder}: its backbone is your own {kind}; pass from_pretrained(..., backbone=) a new one"
        )
    try:
        return rebuild_backbone(description["backbone"])
    except HoldfastError as error:
        raise HoldfastError(f"{folder / CONFIG}: {error}") from error


def load(encoder: nn.Module, tensors: Mapping[str, Tensor], folder: Path) -> None:
    """Copy the weights in, which must be exactly the encoder's, and take over their floating dtype."""
    refuse_misfit(folder / WEIGHTS, tensors, encoder.state_dict(), "network")
    dtypes = {value.dtype for value in tensors.values() if value.is_floating_point()}
    if len(dtypes) == 1:
        encoder.to(dtypes.pop())
    with torch.no_grad():
        encoder.load_state_dict(dict(tensors))


def _version() -> str | None:
    try:
        return metadata.version("holdfast")
    except metadata.PackageNotFoundError:
        return None


EVERYTHING = "*"


def frozen_parts(network: nn.Module, names: Sequence[str]) -> list[nn.Module | nn.Parameter]:
    """For each name the module or the parameter of that name; ``*`` is the network itself.

    A name is a whole path: ``layer1`` means all below it, but not ``layer10``. What is not there is refused.
    """
    if not names:
        return []
    modules, parameters = dict(network.named_modules()), dict(network.named_parameters())
    parts: list[nn.Module | nn.Parameter] = []
    for name in names:
        if name == EVERYTHING:
            parts.append(network)
        elif name and (name in modules or name in parameters):
            parts.append(modules[name] if name in modules else parameters[name])
        else:
            top = ", ".join(child for child, _ in network.named_children())
            raise HoldfastError(f"freeze: the backbone has no part {name!r}; its first level: {top}, or * for all")
    return parts
