"""Find, load and check the pre-trained models that a recipe names."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.core.storage import read_json
from holdfast.train.encoders import Encoder, Input, Readout
from holdfast.train.engine.model_slots import read_slots
from holdfast.train.methods import Method
from holdfast.train.scenarios import ModelSpace

VARIABLE = "HOLDFAST_MODELS"


def models_root(explicit: str | Path | None = None) -> Path:
    """The folder that model paths in recipes are relative to: ``explicit``, else HOLDFAST_MODELS, else ``./models``."""
    return Path(explicit or os.environ.get(VARIABLE) or "models").expanduser()


def named_models(scenario: Mapping[str, Any]) -> list[str]:
    """The models that a scenario section names, each once."""
    return list(dict.fromkeys([scenario["model"], *scenario["replace_with"]]))


def with_head(scenario: Mapping[str, Any], method: Method) -> dict[str, Any]:
    """The section with ``{head}`` in model names replaced, so that one recipe serves both kinds of methods."""
    head = head_of(method)
    named = {"model": scenario["model"], "replace_with": scenario["replace_with"]}
    filled = {
        key: value.replace("{head}", head)
        if isinstance(value, str)
        else [name.replace("{head}", head) for name in value]
        for key, value in named.items()
    }
    return {**scenario, **filled}


def head_of(method: Method) -> str:
    """What a model was pre-trained with: "simplex" (fixed prototypes) or "learnable" (a trainable classifier)."""
    return "learnable" if method.num_slots is None else "simplex"


@dataclass(frozen=True)
class PretrainedModels:
    """Models in folders under ``root``.

    preprocess: replaces the preprocessing of every loaded model. A run has one preprocessing, because the model in
    training and its reference model get the same tensors. None keeps that of each model.
    readout: replaces the readout of every loaded model.
    """

    root: Path
    preprocess: Input | None = None
    readout: Readout = "simplex"

    def load(self, name: str) -> Encoder:
        """The model, converted to float32."""
        folder = self.root / Path(name).expanduser()
        if not folder.is_dir():
            raise HoldfastError(
                f"model {name}: no such folder under {self.root.absolute()}; pre-train it (holdfast pretrain), or give "
                f"the folder of models (models, or {VARIABLE})"
            )
        encoder = Encoder.from_pretrained(folder).float()
        encoder.preprocess = self.preprocess or encoder.preprocess
        encoder.readout = self.readout
        # A name can later be given to other weights, so the checksum of the weights is recorded too.
        weights = read_json(folder / "config.json")["weights_sha256"]
        encoder.info = {**encoder.info, "origin": {"model": name, "weights_sha256": weights}}
        return encoder

    def card(self, name: str, method: Method) -> ModelSpace:
        """Size and slots of one model. A model that ``method`` cannot start from is refused."""
        encoder = self.load(name)
        own = method.feature_dim(encoder.feature_dim)
        if method.num_slots is None:
            if encoder.dim != own:
                raise HoldfastError(
                    f"model {name}: its features are projected from {encoder.feature_dim} to {encoder.dim}; this "
                    "method uses unprojected features; choose a model pre-trained with a trainable classifier"
                )
            return ModelSpace(encoder.dim)
        if "slots" not in encoder.info:
            raise HoldfastError(f"model {name}: has no slot record; pre-train it with a simplex method")
        return ModelSpace(encoder.dim, read_slots(encoder, self.root / name))
