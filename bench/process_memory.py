"""The memory of a process as Linux counts it. Without torch, which would itself be a part of what is measured."""

from pathlib import Path


def bytes_of(what: str, process: int | str = "self") -> int:
    """One of a process's figures in /proc: its peak ``VmHWM``, ``VmRSS`` now, ``RssAnon`` without pages of files.

    The peak is not getrusage's: that of a child starts at what its parent held when it was started.
    """
    status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    return 1024 * next(int(line.split()[1]) for line in status.splitlines() if line.startswith(f"{what}:"))
