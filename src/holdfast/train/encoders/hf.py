"""Image networks of the transformers library, from a folder, a configuration, a model type or the hub.

Remote code is never executed and pickled weights are never read.
"""

import contextlib
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn

from holdfast.core.errors import HoldfastError, first_line, how_to_install, unknown_name
from holdfast.core.storage import read_json
from holdfast.train.encoders.untrusted_networks import (
    BOOKKEEPING,
    check_config,
    check_weight_files,
    refuse_fetching,
)

Pooling = Literal["pooler", "first_token", "mean"]
POOLINGS = ("pooler", "first_token", "mean")
INDEX, ADAPTER = "model.safetensors.index.json", "adapter_config.json"
WEIGHTS = ("model.safetensors", INDEX)
T = TypeVar("T")


class TransformersBackbone(nn.Module):
    """N x C x H x W -> N x ``feature_dim``: a transformers model and the pooling of its output.

    pooling: ``pooler`` is the model's ``pooler_output``; ``first_token`` the first of the last hidden states (the class
        token); ``mean`` their mean, over positions if they are N x C x H x W.
    source: name of the model, for errors and for ``spec``.
    revision: commit on the hub that the weights come from, or None.
    """

    def __init__(self, model: nn.Module, pooling: Pooling, source: str, revision: str | None) -> None:
        super().__init__()
        self.model = model
        self.pooling = pooling
        self.source = source
        self.revision = revision
        self.feature_dim = _feature_dim(model.config, source)

    def forward(self, x: Tensor) -> Tensor:
        output = self.model(pixel_values=x)
        if self.pooling == "pooler":
            if getattr(output, "pooler_output", None) is None:
                raise HoldfastError(f"backbone {self.source}: it has no pooler; choose another pooling")
            return output.pooler_output.flatten(1)  # convolutional models pool to N x C x 1 x 1
        hidden = output.last_hidden_state
        if hidden.ndim == 4:
            return hidden.mean(dim=(2, 3))
        return hidden[:, 0] if self.pooling == "first_token" else hidden.mean(dim=1)

    def spec(self) -> dict[str, Any]:
        """JSON from which ``rebuild_hf`` builds the same architecture offline."""
        config: Any = self.model.config
        known = type(config)().to_dict()
        kept = {key: value for key, value in config.to_dict().items() if key in known and key not in BOOKKEEPING}
        return {
            "name": f"hf:{config.model_type}",
            "options": {"config": kept, "pooling": self.pooling},
            "source": {"name": self.source, "revision": self.revision},
        }


def hf_backbone(
    name: str,
    *,
    config: dict[str, Any] | None = None,
    revision: str | None = None,
    pooling: Pooling | None = None,
) -> TransformersBackbone:
    """Build a transformers model.

    name: the first of these that exists: a local folder with ``config.json`` (its safetensors weights are loaded, if
        any) or a local ``.json`` file; a model type such as ``dinov3_vit``, with its default configuration and random
        weights; an id on the hub, with its weights.
    config: fields that override the default configuration of a model type.
    revision: commit, tag or branch on the hub.
    pooling: see ``TransformersBackbone``. None is the model's pooler if it has one with trained weights, else the class
        token, else the mean.

    If the hub cannot be reached, a model of the hub is read from the local cache, or refused at once.
    """
    transformers = _transformers(name)
    if name.startswith("~"):
        name = str(Path(name).expanduser())
    path = Path(name)
    local = path.exists() or name.startswith((".", "/")) or name.endswith(".json")
    is_type = not local and name in transformers.CONFIG_MAPPING
    if config is not None and not is_type:
        raise HoldfastError(f"backbone hf:{name}: config overrides only a model type's fields; edit its config.json")
    if revision is not None and (local or is_type):
        raise HoldfastError(f"backbone hf:{name}: revision is only for models on the hub; leave it out")
    if is_type:
        return _from_type(transformers, name, config or {}, pooling, {})
    if local and not path.exists():
        raise HoldfastError(f"backbone hf:{name}: no such file or folder")
    if local:
        _check_local(path, name)
    safe = {"trust_remote_code": False, "local_files_only": local or _only_in_cache(name, revision)}
    at = safe if revision is None else {**safe, "revision": revision}
    settings = _trying(name, lambda: transformers.AutoConfig.from_pretrained(name, **at))
    refuse_fetching(f"hf:{name}", settings.to_dict())
    if local and not _has_weights(path):
        return _wrapped(_trying(name, lambda: _random(transformers, settings)), pooling, f"hf:{name}", None)
    model, report = _trying(
        name,
        lambda: transformers.AutoModel.from_pretrained(
            name, config=settings, use_safetensors=True, output_loading_info=True, dtype=torch.float32, **at
        ),
    )
    missing = sorted(report["missing_keys"])
    without_pooler = [key for key in missing if "pooler" not in key]
    if without_pooler:
        raise HoldfastError(f"backbone hf:{name}: its weights lack {', '.join(without_pooler[:8])}")
    commit = getattr(settings, "_commit_hash", None)
    return _wrapped(model.train(), pooling, f"hf:{name}", commit, untrained_pooler=bool(missing))


def rebuild_hf(model_type: str, options: Mapping[str, Any], source: Mapping[str, Any]) -> TransformersBackbone:
    """The architecture of a saved spec, with random weights. Only model types are accepted, no folders or hub ids."""
    transformers = _transformers(model_type)
    return _from_type(transformers, model_type, options.get("config") or {}, options.get("pooling"), source)


def _from_type(
    transformers: Any, name: str, config: Mapping[str, Any], pooling: Pooling | None, source: Mapping[str, Any]
) -> TransformersBackbone:
    def defaults(model_type: str) -> dict[str, Any]:
        if model_type not in transformers.CONFIG_MAPPING:
            version = transformers.__version__
            raise HoldfastError(f"model type {model_type!r} is not in transformers {version}; update it")
        return _trying(name, lambda: transformers.CONFIG_MAPPING[model_type]().to_dict())

    check_config(name, config, defaults)
    if {**defaults(name), **config}.get("use_pretrained_backbone"):
        raise HoldfastError(f"backbone hf:{name}: use_pretrained_backbone would fetch weights; set it to false")
    settings = _trying(name, lambda: transformers.AutoConfig.for_model(name, **config))
    refuse_fetching(f"hf:{name}", settings.to_dict())  # defaults of nested configurations, too
    model = _trying(name, lambda: _random(transformers, settings))
    return _wrapped(model, pooling, source.get("name") or f"hf:{name}", source.get("revision"))


def _check_local(path: Path, name: str) -> None:
    """Check what transformers reads in a folder: it opens other files, and asks the hub, for some of what they name."""
    config = path / "config.json" if path.is_dir() else path
    fields = read_json(config) if config.exists() else None
    if isinstance(fields, Mapping):
        refuse_fetching(f"hf:{name}", fields)
    if (path / ADAPTER).exists():
        raise HoldfastError(f"{path / ADAPTER}: an adapter names another model; merge it into that one first")
    index = path / INDEX
    if index.exists():
        check_weight_files(read_json(index), str(index))


def _random(transformers: Any, config: Any) -> Any:
    return transformers.AutoModel.from_config(config, trust_remote_code=False, dtype=torch.float32)


def _wrapped(
    model: Any, pooling: Pooling | None, source: str, revision: str | None, *, untrained_pooler: bool = False
) -> TransformersBackbone:
    if model.main_input_name != "pixel_values":
        raise HoldfastError(f"backbone {source}: a {model.config.model_type} model does not take images alone")
    if pooling is not None and pooling not in POOLINGS:
        raise unknown_name("pooling", pooling, POOLINGS)
    chosen: Pooling = _trying(source, lambda: pooling or _best_pooling(model, untrained_pooler))
    return TransformersBackbone(model, chosen, source, revision)


def _best_pooling(model: Any, untrained_pooler: bool) -> Pooling:
    if not untrained_pooler and _pools(model):
        return "pooler"
    return "first_token" if any(name.endswith("cls_token") for name, _ in model.named_parameters()) else "mean"


def _pools(model: Any) -> bool:
    """Whether the model returns a ``pooler_output``, tested with one image: classes do not declare it."""
    side, channels = getattr(model.config, "image_size", 64), getattr(model.config, "num_channels", 3)
    height, width = side if isinstance(side, list | tuple) else (side, side)
    training = model.training
    with torch.no_grad():
        output = model.eval()(pixel_values=torch.zeros(1, channels, height, width, device=model.device))
    model.train(training)
    return getattr(output, "pooler_output", None) is not None


def _feature_dim(config: Any, source: str) -> int:
    size = getattr(config, "hidden_size", None) or (getattr(config, "hidden_sizes", None) or [None])[-1]
    if not isinstance(size, int):
        raise HoldfastError(f"backbone {source}: its configuration has neither hidden_size nor hidden_sizes")
    return size


def _has_weights(path: Path) -> bool:
    if not path.is_dir() or any((path / name).exists() for name in WEIGHTS):
        return path.is_dir()
    if list(path.glob("*.bin")):
        raise HoldfastError(f"{path}: only pickled weights, which are never read; convert them to safetensors")
    return False


def hub_settings(name: str) -> Path | None:
    """The folder with ``config.json`` and, if it has one, ``preprocessor_config.json`` of a model on the hub.

    They are downloaded if the hub can be reached; None otherwise, and for a name that is not a hub id.
    """
    if "/" not in name:
        return None
    try:
        import huggingface_hub
        from huggingface_hub import constants
    except ImportError:  # building the network will say what to install
        return None
    if constants.HF_HUB_OFFLINE or _unreachable(constants.ENDPOINT) is not None:
        return None
    try:
        config = huggingface_hub.hf_hub_download(name, "config.json")
    except Exception:  # building the network will say what is wrong with the name
        return None
    with contextlib.suppress(Exception):  # not all models have it
        huggingface_hub.hf_hub_download(name, "preprocessor_config.json")
    return Path(config).parent


REACH_SECONDS = 5.0
"""A hub that does not answer in this time counts as unreachable; its own client would retry for about a minute."""


def _only_in_cache(name: str, revision: str | None) -> bool:
    """Whether the hub cannot be reached, but the model is in the local cache; refused if it is not."""
    import huggingface_hub
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        reason = "HF_HUB_OFFLINE is set"
    elif (error := _unreachable(constants.ENDPOINT)) is not None:
        reason = f"{constants.ENDPOINT} cannot be reached ({error})"
    else:
        return False
    cached = _trying(name, lambda: huggingface_hub.try_to_load_from_cache(name, "config.json", revision=revision))
    if not isinstance(cached, str):
        download = f"hf download {name}{f' --revision {revision}' if revision else ''} --local-dir FOLDER"
        raise HoldfastError(
            f"backbone hf:{name}: no such folder here, {reason}, and the model is not in its cache; with a network run "
            f"{download}, copy FOLDER here and give hf:FOLDER"
        )
    return True


def _unreachable(address: str) -> str | None:
    """Why one request to ``address`` gets no answer within ``REACH_SECONDS``; None if it does. Proxies are used."""
    found: list[str | None] = []

    def ask() -> None:
        try:
            with urllib.request.urlopen(urllib.request.Request(address, method="HEAD"), timeout=REACH_SECONDS):
                found.append(None)
        except urllib.error.HTTPError:  # an answer, whatever it says
            found.append(None)
        except urllib.error.URLError as error:  # another client may trust certificates that this one does not
            found.append(None if isinstance(error.reason, ssl.SSLError) else str(error.reason))
        except (OSError, ValueError) as error:
            found.append(str(error))

    asking = threading.Thread(target=ask, daemon=True)  # looking up a name has no time limit of its own
    asking.start()
    asking.join(REACH_SECONDS)
    return found[0] if found else f"no answer in {REACH_SECONDS:g} s"


def _transformers(name: str) -> Any:
    try:
        import transformers
    except ImportError as error:
        raise HoldfastError(f"backbone hf:{name} needs transformers; {how_to_install('hf')}") from error
    return transformers


def _trying(name: str, build: Callable[[], T]) -> T:
    try:
        return build()
    except Exception as error:  # hub, file and configuration errors have no common type
        raise HoldfastError(f"backbone hf:{name.removeprefix('hf:')}: {first_line(error)}") from error
