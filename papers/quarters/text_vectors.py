"""Vectors of the descriptions of Debian's packages, with their section as the class.

WordLlama, a table of token vectors that holds no network, is a package on PyPI and is not installed with Holdfast:

    pip install wordllama
"""

import importlib
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from holdfast.core.errors import HoldfastError

MOST = 50_000
SHORTEST = 20
WIDTH = 256


def write_text_vectors(out: Path, packages: Path | None = None, *, say: Callable[[str], None] = print) -> None:
    """Write ``OUT/texts.npz`` with features, labels (sections) and ids (packages), in random order.

    packages: a file in the format of ``apt-cache dumpavail`` or of Debian's ``Packages``; None runs that command.

    A file that exists is kept.
    """
    target = out / "texts.npz"
    if target.exists():
        return
    rows = descriptions(packages.read_text("utf-8") if packages else _available())
    if not rows:
        raise HoldfastError("no package descriptions found; give a Packages file of Debian")
    order = np.random.default_rng(0).permutation(len(rows))[:MOST]
    names, sections, about = zip(*(rows[row] for row in order), strict=True)
    try:
        wordllama = importlib.import_module("wordllama")
    except ImportError as error:
        raise HoldfastError(f"{error}; pip install wordllama") from error
    model = wordllama.WordLlama.load(trunc_dim=WIDTH)
    started = time.perf_counter()
    features = np.asarray(model.embed(list(about)), dtype=np.float32)
    seconds = time.perf_counter() - started
    filled = np.linalg.norm(features, axis=1) > 0
    out.mkdir(parents=True, exist_ok=True)
    partial = target.with_suffix(".partial.npz")
    np.savez(
        partial,
        features=features[filled],
        labels=np.array(sections)[filled],
        ids=np.array(names)[filled],
        seconds=seconds,
    )
    partial.replace(target)
    say(f"{target}: {int(filled.sum()):,} descriptions")


def descriptions(text: str) -> list[tuple[str, str, str]]:
    """(package, section, description) of each package with a description, the first of each name.

    A section such as ``contrib/net`` counts as ``net``.
    """
    found: dict[str, tuple[str, str, str]] = {}
    for block in text.split("\n\n"):
        fields: dict[str, str] = {}
        key = ""
        for line in block.split("\n"):
            if line[:1] == " " and key:
                fields[key] += " " + line.strip()
            elif ":" in line:
                key, value = line.split(":", 1)
                fields[key] = value.strip()
        about = fields.get("Description") or fields.get("Description-en") or ""
        name, section = fields.get("Package", ""), fields.get("Section", "").split("/")[-1]
        if name and section and len(about) > SHORTEST:
            found.setdefault(name, (name, section, about))
    return list(found.values())


def _available() -> str:
    try:
        return subprocess.run(["apt-cache", "dumpavail"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise HoldfastError(f"apt-cache dumpavail: {error}; give a Packages file of Debian with --packages") from error
