"""The compiler takes the kernels, not only the interpreter: for an H200, on any machine."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import papers.kernels

SOURCES = sorted(Path(papers.kernels.__file__).parent.glob("*.py"))


@pytest.mark.slow
def test_every_kernel_compiles(tmp_path):
    pytest.importorskip("triton")
    script = Path(__file__).with_name("compile_for_a_gpu.py")
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path)
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout) >= 100


def test_no_kernel_has_default_arguments():
    """Triton 3.6, which comes with the oldest torch that is supported, takes no text for one."""
    functions = [node for path in SOURCES for node in ast.walk(ast.parse(path.read_text())) if is_kernel(node)]
    assert len(functions) > 10
    assert [function.name for function in functions if function.args.defaults or function.args.kw_defaults] == []


def is_kernel(node):
    return isinstance(node, ast.FunctionDef) and any(ast.unparse(one) == "triton.jit" for one in node.decorator_list)
