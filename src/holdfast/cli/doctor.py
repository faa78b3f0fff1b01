"""``holdfast doctor``: check that this machine has everything a run needs."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import typer

from holdfast.cli.options import JSON_OPTION
from holdfast.cli.show import print_json, print_table
from holdfast.core.errors import HoldfastError, first_line
from holdfast.core.wording import counted

EXTRAS = {
    "torch": "models that embed images, and training",
    "PIL": "reading images",
    "pydantic": "recipes, and holdfast serve",
    "tomli_w": "training",
    "matplotlib": "demo --train, which draws with its fonts",
    "wordllama": "the demo: its new model",
    "tokenizers": "the demo: its new model",
    "transformers": "backbones hf:NAME",
    "timm": "backbones timm:NAME",
    "pyarrow": "features in parquet files",
    "pillow_heif": "HEIC images",
    "onnx": "holdfast export FILE.onnx",
    "onnxscript": "holdfast export FILE.onnx",
    "onnxruntime": "running what was exported",
    "qdrant_edge": "holdfast gallery",
    "fastapi": "holdfast serve",
    "uvicorn": "holdfast serve",
    "prometheus_client": "holdfast serve",
    "httptools": "holdfast serve",
    "uvloop": "holdfast serve, faster",
    "psycopg": "holdfast gallery on postgresql://",
    "psycopg_pool": "holdfast gallery on postgresql://",
    "qdrant_client": "holdfast gallery attach, of Qdrant",
    "ray": "holdfast embed --ray",
}
"""Modules of the optional libraries in the extras of pyproject.toml, and their use."""


def doctor(
    json: bool = JSON_OPTION,
) -> None:
    """Say what is missing on this machine.

    Looks at Python, devices, data and libraries. Libraries are looked up and not imported, except torch where there may
    be a GPU. Exits with 1 if something that every command needs is missing.

    Example: holdfast doctor
    """
    checks = [*_software(), *_devices(), *_data(), *_extras()]
    if json:
        print_json(checks)
    else:
        mark = {"ok": "ok", "missing": "–", "broken": "BROKEN"}
        print_table(["check", "", "found"], [[c["name"], mark[c["state"]], c["found"]] for c in checks])
    if any(check["state"] == "broken" for check in checks):
        raise typer.Exit(1)


def _check(name: str, state: str, found: str) -> dict[str, Any]:
    return {"name": name, "state": state, "found": found}


NEEDED = ("numpy", "safetensors", "filelock", "typer", "rich", "lazy_loader")
"""Libraries without which nothing works."""


def _software() -> list[dict[str, Any]]:
    import platform

    from holdfast.core.environment import DISTRIBUTION, version

    own = version(DISTRIBUTION) or "not installed, run from its source"
    rows = [_check("holdfast", "ok", f"{own}, Python {platform.python_version()}")]
    for name in NEEDED:
        found = version(name)
        rows.append(_check(name, "ok" if found else "broken", found or f"not installed; pip install {name}"))
    return rows


def _devices() -> list[dict[str, Any]]:
    from holdfast.core.environment import processor

    row = _check("cpu", "ok", f"{processor()}, {counted(os.cpu_count() or 1, 'core')}")
    no_gpu = _check("cuda", "missing", "no GPU that torch can use; runs go to the CPU")
    if not _may_have_gpu():
        return [row, no_gpu]
    try:
        from holdfast.train.devices import gpu_descriptions
    except Exception as error:  # in any way, if it does not match the machine
        return [row, _check("cuda", "broken", f"torch cannot be imported: {first_line(error)}")]
    gpus = [_check(f"cuda:{number}", "ok", found) for number, found in enumerate(gpu_descriptions())]
    return [row, *(gpus or [no_gpu])]


GPU_FILES = ("nvidiactl", "nvidia0", "kfd", "dxg")
"""Device files of NVIDIA, of AMD, and of Windows' GPU inside WSL."""


def _may_have_gpu(devices: Path = Path("/dev")) -> bool:
    """Whether torch may be able to use a GPU. Only torch knows for sure, but importing it takes a second or more."""
    from holdfast.core.environment import version

    if find_spec("torch") is None or (version("torch") or "").endswith("+cpu") or sys.platform == "darwin":
        return False
    return sys.platform != "linux" or any((devices / name).exists() for name in GPU_FILES)


def _data() -> list[dict[str, Any]]:
    from holdfast.core.errors import how_to_install

    if any(find_spec(name) is None for name in ("torch", "PIL", "matplotlib")):
        return [_check("data sets", "missing", f"for training; {how_to_install('train')}")]
    from holdfast.train.data import DATASETS, data_root, load_split

    rows = []
    try:
        load_split("glyphs", "query", per_class=1, train_classes=1, test_classes=1)
        rows.append(_check("glyphs", "ok", "drawn from matplotlib's fonts; needs no files"))
    except HoldfastError as error:
        rows.append(_check("glyphs", "broken", str(error)))
    root = data_root()
    if not root.is_dir():
        return [*rows, _check("data root", "missing", f"{root} does not exist; set HOLDFAST_DATA")]
    for name, dataset in DATASETS.items():
        if not dataset.files:
            continue
        path = dataset.find(root)
        missing = f"not in {root}: looked for {', '.join(dataset.files)}"
        rows.append(_check(name, "ok" if path else "missing", str(path or missing)))
    return rows


def _extras() -> list[dict[str, Any]]:
    there = {name: find_spec(name) is not None for name in EXTRAS}
    return [
        _check(name, "ok", f"for {use}") if there[name] else _check(name, "missing", f"for {use}: not installed")
        for name, use in EXTRAS.items()
    ]
