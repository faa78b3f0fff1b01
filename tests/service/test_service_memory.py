"""Memory that the service has freed goes back to the system."""

import ctypes
import subprocess
import sys

import pytest

HAS_TRIM = sys.platform == "linux" and hasattr(ctypes.CDLL(None), "malloc_trim")

PROGRAM = """
from pathlib import Path
from holdfast.service.body_limits import return_freed_memory

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20

blocks = [b"x" * (65536 + number % 2) for number in range(1600)]  # 100 MiB
kept = blocks[::2]
blocks.clear()
del blocks
held = resident()
return_freed_memory()
print(held - resident())
"""


@pytest.mark.skipif(not HAS_TRIM, reason="needs malloc_trim, which only glibc has")
def test_freed_memory_between_what_is_still_used_is_returned():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert float(done.stdout) > 40  # MiB; half of 100 are free
