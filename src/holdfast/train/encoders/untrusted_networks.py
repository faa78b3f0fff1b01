"""What a model folder may say about a network of timm or transformers, which build what their options name.

Some of these options name a file, an address or a repository: timm unpickles ``checkpoint_path`` before version 1.0.26,
and transformers downloads a nested backbone. So options are known names with plain values, and nested configurations
are checked like the outer one.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from holdfast.core.errors import HoldfastError, unknown_name

_WORD = re.compile(r"[\w.+-]{0,100}", re.ASCII)
"""The name of an activation, a network or a choice. A path has "/", an address and code have ":"."""

_LAYERS = re.compile("layers|depth|stages|blocks")
MOST_LAYERS = 10_000
"""Networks have at most hundreds. For each of them a configuration lists names, before anything is built."""

TIMM_OPTIONS = frozenset({
    "aa_layer", "act_layer", "attn_drop_rate", "avg_down", "base_width", "block_reduce_first", "bn_eps", "bn_momentum",
    "cardinality", "channels", "class_token", "conv_bias", "conv_mlp", "depth", "depths", "dims", "drop_block_rate",
    "drop_path_rate", "drop_rate", "dynamic_img_pad", "dynamic_img_size", "embed_dim", "fc_norm", "final_norm",
    "global_pool", "head_hidden_size", "head_init_scale", "img_size", "in_chans", "init_values", "kernel_sizes",
    "layers", "ls_init_value", "mlp_ratio", "no_embed_class", "norm_eps", "norm_layer", "num_heads", "output_stride",
    "patch_drop_rate", "patch_size", "pos_drop_rate", "pos_embed", "pre_norm", "proj_drop_rate", "qk_norm", "qkv_bias",
    "reg_tokens", "replace_stem_pool", "stem_size", "stem_type", "stem_width", "strict_img_size", "use_grn",
    "window_size", "zero_init_last",
})  # fmt: skip
"""Options of ``timm.create_model`` that describe a network and name nothing outside of it."""

_WITHOUT_KERNELS = (None, "eager", "sdpa", "flex_attention", "batched_mm", "grouped_mm")
"""Implementations in torch. For others, also plain words such as flash_attention_2, transformers downloads code."""

BOOKKEEPING = ("transformers_version", "architectures", "dtype", "id2label", "label2id", "_name_or_path", "model_type")
"""Fields of a configuration about the file or the labels, not the architecture."""


def check_timm(name: str, options: Mapping[str, Any]) -> None:
    """Refuse a name that is not one of timm's own, such as ``hf-hub:...``, and options not in ``TIMM_OPTIONS``."""
    if not _WORD.fullmatch(name):
        raise HoldfastError(f"backbone timm:{name}: not the name of a network in timm, which has no ':' and no '/'")
    for option, value in options.items():
        if option not in TIMM_OPTIONS:
            raise unknown_name(f"option of backbone timm:{name}:", option, TIMM_OPTIONS)
        _check_layers(option, value, f"timm:{name}")
        _check_plain(value, f"backbone timm:{name}: {option}")


def check_config(model_type: str, config: Mapping[str, Any], defaults: Callable[[str], Mapping[str, Any]]) -> None:
    """Refuse fields that a configuration of transformers has not by default, and values that are not plain.

    defaults: returns the default configuration of a model type; it raises ``HoldfastError`` for an unknown type.
    """
    refuse_fetching(f"hf:{model_type}", {"model_type": model_type, **config})
    known = defaults(model_type)
    for field, value in config.items():
        # transformers silently accepts unknown fields, so a misspelt one would have no effect.
        if field not in known:
            raise unknown_name(f"config field of hf:{model_type}:", field, (key for key in known if key[0] != "_"))
        what = f"backbone hf:{model_type}: {field}"
        if field in BOOKKEEPING:
            continue
        if not isinstance(value, Mapping):
            _check_plain(value, what)
        elif "model_type" in value or field.endswith("_config"):
            inner = value.get("model_type")
            if not isinstance(inner, str):
                raise HoldfastError(f"{what} has no model_type, so it is not known what it builds")
            check_config(inner, {key: part for key, part in value.items() if key != "model_type"}, defaults)
        else:
            for part in value.values():
                _check_plain(part, what)


def refuse_fetching(name: str, config: Mapping[str, Any]) -> None:
    """Refuse a configuration by which transformers would read more than the model itself, or need far more memory.

    Nested ones, too.

    name: of the backbone, for errors.
    """
    model_type = config.get("model_type")
    if model_type == "timm_wrapper":
        raise HoldfastError(f"backbone {name}: a network of timm; name it as timm:NAME")
    for field in ("use_pretrained_backbone", "backbone_kwargs", "backbone"):
        if config.get(field) and not (field == "backbone" and model_type == "timm_backbone"):
            raise HoldfastError(f"backbone {name}: {field} would fetch another network; a nested config describes it")
    if model_type == "timm_backbone":
        _check_plain(config.get("backbone"), f"backbone {name}: backbone")
    for field in ("attn_implementation", "_attn_implementation", "experts_implementation", "_experts_implementation"):
        value = config.get(field)
        if any(part not in _WITHOUT_KERNELS for part in (value.values() if isinstance(value, Mapping) else [value])):
            raise HoldfastError(f"backbone {name}: {field} would fetch code; leave it out")
    if config.get("quantization_config"):
        raise HoldfastError(f"backbone {name}: its weights are quantized; use the original ones")
    for field, value in config.items():
        _check_layers(field, value, name)
    for part in _mappings(list(config.values())):
        refuse_fetching(name, part)


def _mappings(values: Sequence[Any]) -> Iterator[Mapping[str, Any]]:
    """The nested objects, in lists too."""
    for value in values:
        if isinstance(value, Mapping):
            yield value
        elif isinstance(value, list | tuple):
            yield from _mappings(value)


def _check_layers(field: str, value: Any, name: str) -> None:
    if _LAYERS.search(str(field)):
        for number in value if isinstance(value, list | tuple) else [value]:
            if isinstance(number, int | float) and abs(number) > MOST_LAYERS:
                raise HoldfastError(f"backbone {name}: {field} must be at most {MOST_LAYERS}, found {str(number)[:20]}")


def _check_plain(value: Any, what: str) -> None:
    """Refuse all but numbers, true, false, null, words, and lists of these."""
    if isinstance(value, list | tuple):
        for part in value:
            _check_plain(part, what)
    elif not (value is None or isinstance(value, int | float) or (isinstance(value, str) and _WORD.fullmatch(value))):
        raise HoldfastError(f"{what} is {str(value)[:60]!r}; it must be a number, a word, or a list of these")


def check_weight_files(index: Any, source: str) -> None:
    """Refuse an index of weights that names other files than safetensors beside it: transformers unpickles the others.

    index: content of ``model.safetensors.index.json``.
    source: its path, for errors.
    """
    files = index.get("weight_map") if isinstance(index, Mapping) else None
    if not isinstance(files, Mapping):
        raise HoldfastError(f"{source}: has no weight_map, which says the file of each weight")
    for file in files.values():
        if not (isinstance(file, str) and _WORD.fullmatch(file) and file.endswith(".safetensors")):
            raise HoldfastError(f"{source}: names {str(file)[:60]!r}; weights must be safetensors files beside it")
