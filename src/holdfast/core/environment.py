"""The environment of a result: hardware, versions, commit."""

import importlib.metadata
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

DISTRIBUTION = "holdfast-index"
"""The name of the installed distribution. On package indexes "holdfast" is another project."""

PACKAGES = ("torch", "numpy", "pillow", "safetensors", "transformers")

BETWEEN_SESSIONS = " + "
"""Between the commits of a run that was made in several sessions; a ``+`` without spaces marks a changed checkout."""


def describe(device: str | None = None) -> dict[str, Any]:
    """The machine and the software as JSON values.

    device: torch's name of the device that the work runs on, or None.
    """
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "holdfast": version(DISTRIBUTION),
        "commit": commit(),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "processor": processor(),
        "cores": os.cpu_count(),
        "threads": _threads(),
        "device": device,
        "gpu": _gpu(device),
        "packages": {name: version(name) for name in PACKAGES if version(name)},
    }


def version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def commit() -> str | None:
    """The commit of the checkout that Holdfast runs from, with ``+`` if it was changed; None if it is installed.

    The environment variable HOLDFAST_COMMIT overrides it, for a copy without the git history.
    """
    if given := os.environ.get("HOLDFAST_COMMIT"):
        return given
    root = Path(__file__).parents[3]
    if not (root / ".git").exists():
        return None
    head = _git(root, "rev-parse", "HEAD")
    changed = _git(root, "status", "--porcelain", "--untracked-files=no")
    return f"{head[:12]}{'+' if changed else ''}" if head else None


def short_commit(recorded: str | None) -> str:
    """The first seven digits of a recorded commit, with ``+`` if the checkout was changed, such as "097b4af+".

    recorded: the commit in a record. A run in several sessions can have several commits; each of them is shortened.
    Returns "an unknown one" if no commit was recorded.
    """
    if not recorded:
        return "an unknown one"
    each = recorded.split(BETWEEN_SESSIONS)
    return BETWEEN_SESSIONS.join(one[:7] + ("+" if one.endswith("+") else "") for one in each)


def processor() -> str:
    """The processor's name."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return _name_by_lscpu() or platform.processor() or platform.machine()


def _name_by_lscpu() -> str | None:
    """On ARM the kernel gives only numbers; ``lscpu`` knows the names."""
    try:
        done = subprocess.run(["lscpu"], capture_output=True, text=True, timeout=10, env={**os.environ, "LC_ALL": "C"})
    except (OSError, subprocess.SubprocessError):
        return None
    lines = [line.partition(":") for line in done.stdout.splitlines()]
    fields = {name.strip(): value.strip() for name, _, value in lines}
    name = fields.get("Model name")
    return f"{fields.get('Vendor ID', '')} {name}".strip() if name else None


def _threads() -> int | None:
    """Threads that torch uses, if it is loaded. Another number changes the order of sums and so their rounding."""
    torch = sys.modules.get("torch")
    return None if torch is None else int(torch.get_num_threads())


def _gpu(device: str | None) -> str | None:
    torch = sys.modules.get("torch")
    if torch is None or not device or not device.startswith("cuda"):
        return None
    return str(torch.cuda.get_device_name(device))


def _git(root: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
