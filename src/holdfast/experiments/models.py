"""The pre-trained models that a recipe names: found, loaded and checked before anything is trained."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.encoders import Encoder, Preprocess, VectorInput
from holdfast.errors import HoldfastError
from holdfast.methods import Method
from holdfast.scenarios import ModelCard
from holdfast.storage import read_json
from holdfast.training.slots import read_slots

VARIABLE = "HOLDFAST_MODELS"


def models_root(explicit: str | Path | None = None) -> Path:
    """The folder that model paths in recipes are relative to: ``explicit``, else HOLDFAST_MODELS, else ``./models``."""
    return Path(explicit or os.environ.get(VARIABLE) or "models").expanduser()


def named_models(scenario: Mapping[str, Any]) -> list[str]:
    """The models a scenario section brings in, each once."""
    return list(dict.fromkeys([scenario["model"], *scenario["replace_with"]]))


def with_head(scenario: Mapping[str, Any], method: Method) -> dict[str, Any]:
    """The section with ``{head}`` in model names filled in, so that one recipe serves methods of both kinds."""
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
class BroughtIn:
    """Models in folders under ``root``, fitted with the preprocessing of the run.

    One preprocessing for the whole run, because the model in training and the one it is held to see the same tensors.
    """

    root: Path
    preprocess: Preprocess | VectorInput | None = None

    def load(self, name: str) -> Encoder:
        """The model in float32, whatever it was saved in."""
        folder = self.root / Path(name).expanduser()
        if not folder.is_dir():
            raise HoldfastError(
                f"model {name}: no such folder under {self.root.absolute()}; pre-train it (holdfast pretrain), or say "
                f"where models are (--models or {VARIABLE})"
            )
        encoder = Encoder.from_pretrained(folder).float()
        encoder.preprocess = self.preprocess or encoder.preprocess
        # Names can be given to other weights: models fine-tuned from these say from which.
        weights = read_json(folder / "config.json")["weights_sha256"]
        encoder.info = {**encoder.info, "origin": {"model": name, "weights_sha256": weights}}
        return encoder

    def card(self, name: str, method: Method) -> ModelCard:
        """Size and slots of one model; refused where ``method`` cannot go on from it."""
        encoder = self.load(name)
        own = method.feature_dim(encoder.feature_dim)
        if method.num_slots is None:
            if encoder.dim != own:
                raise HoldfastError(
                    f"model {name}: its features are projected from {encoder.feature_dim} to {encoder.dim}; this "
                    "method reads the backbone's own, so give it one pre-trained with a trainable classifier"
                )
            return ModelCard(encoder.dim)
        if "slots" not in encoder.info:
            raise HoldfastError(f"model {name}: has no slot record; pre-train it with a simplex method")
        return ModelCard(encoder.dim, read_slots(encoder, self.root / name))
