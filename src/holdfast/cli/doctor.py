"""``holdfast doctor``: check that this machine has everything a run needs."""

from pathlib import Path
from typing import Any

import typer

from holdfast.cli.options import DATA_OPTION, JSON_OPTION
from holdfast.cli.show import print_json, print_table
from holdfast.wording import counted

EXTRAS = {
    "transformers": "backbones hf:NAME",
    "timm": "backbones timm:NAME",
    "tensorboard": "--log tensorboard",
    "wandb": "--log wandb",
    "mlflow": "--log mlflow",
    "pyarrow": "features in parquet files",
    "onnx": "holdfast export --onnx",
    "onnxscript": "holdfast export --onnx",
    "onnxruntime": "running what was exported",
    "qdrant_edge": "holdfast gallery",
    "fastapi": "holdfast serve",
    "uvicorn": "holdfast serve",
    "prometheus_client": "holdfast serve",
    "httptools": "holdfast serve, faster",
    "uvloop": "holdfast serve, faster",
    "psycopg": "holdfast gallery on postgresql://",
    "psycopg_pool": "holdfast gallery on postgresql://",
    "qdrant_client": "holdfast gallery on http(s)://",
}
"""Modules of the optional libraries in the extras of pyproject.toml, and their use."""


def doctor(data: Path | None = DATA_OPTION, json: bool = JSON_OPTION) -> None:
    """Say what is missing on this machine.

    Looks at Python, torch, devices, fonts, data and optional libraries. Exits with 1 if something that every run needs
    does not work.
    """
    checks = [*_software(), *_devices(), *_data(data), *_extras()]
    if json:
        print_json(checks)
    else:
        mark = {"ok": "ok", "missing": "–", "broken": "BROKEN"}
        print_table(["check", "", "found"], [[c["name"], mark[c["state"]], c["found"]] for c in checks])
    if any(check["state"] == "broken" for check in checks):
        raise typer.Exit(1)


def _check(name: str, state: str, found: str) -> dict[str, Any]:
    return {"name": name, "state": state, "found": found}


def _software() -> list[dict[str, Any]]:
    import platform

    from holdfast.environment import version

    rows = [_check("holdfast", "ok", f"{version('holdfast')}, Python {platform.python_version()}")]
    for name in ("torch", "numpy", "pillow", "safetensors", "pydantic", "typer", "rich", "matplotlib"):
        found = version(name)
        rows.append(_check(name, "ok" if found else "broken", found or f"not installed; pip install {name}"))
    return rows


def _devices() -> list[dict[str, Any]]:
    import torch

    from holdfast.environment import processor

    rows = [_check("cpu", "ok", f"{processor()}, torch uses {counted(torch.get_num_threads(), 'thread')}")]
    if torch.cuda.is_available():
        for i in range(torch.cuda.device_count()):
            memory = torch.cuda.get_device_properties(i).total_memory / 2**30
            rows.append(_check(f"cuda:{i}", "ok", f"{torch.cuda.get_device_name(i)}, {memory:.0f} GiB"))
    else:
        rows.append(_check("cuda", "missing", "no GPU that torch can use; runs go to the CPU"))
    return rows


def _data(data: Path | None) -> list[dict[str, Any]]:
    from holdfast.data import DATASETS, data_root, load_split
    from holdfast.errors import HoldfastError

    rows = []
    try:
        load_split("glyphs", "query", per_class=1, train_classes=1, test_classes=1)
        rows.append(_check("glyphs", "ok", "drawn from matplotlib's fonts; needs no files"))
    except HoldfastError as error:
        rows.append(_check("glyphs", "broken", str(error)))
    root = data_root(data)
    if not root.is_dir():
        return [*rows, _check("data root", "missing", f"{root} does not exist; set HOLDFAST_DATA or --data")]
    for name, dataset in DATASETS.items():
        if not dataset.files:
            continue
        path = dataset.find(root)
        missing = f"not in {root}: looked for {', '.join(dataset.files)}"
        rows.append(_check(name, "ok" if path else "missing", str(path or missing)))
    return rows


def _extras() -> list[dict[str, Any]]:
    rows = []
    for name, use in EXTRAS.items():
        try:
            __import__(name)
            rows.append(_check(name, "ok", f"for {use}"))
        except Exception as error:  # an extra may fail in any way if it does not match the torch build
            rows.append(_check(name, "missing", f"for {use}: {str(error).splitlines()[0] or type(error).__name__}"))
    return rows
