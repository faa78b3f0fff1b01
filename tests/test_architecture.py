"""The arrows of ARCHITECTURE.md, the lazy imports and the public surface, kept honest by reading the source."""

import ast
import importlib
import importlib.util
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast

SOURCE = Path(holdfast.__file__).parent

# Which package may import which. Single files (errors, storage, pixels and the like) may be imported by all.
ALLOWED = {
    "geometry": set(),
    "losses": {"geometry"},
    "methods": {"losses", "geometry"},
    "data": set(),
    "scenarios": {"data"},
    "encoders": {"data", "geometry"},
    "training": {"methods", "scenarios", "encoders", "data", "geometry"},
    "metrics": set(),
    "evaluation": {"metrics", "encoders", "geometry", "scenarios"},
    "lifecycle": {
        "data", "encoders", "evaluation", "experiments", "geometry", "losses", "methods", "metrics", "reports",
        "scenarios", "training",
    },
    "gallery": {"encoders", "evaluation", "geometry", "scenarios"},
    "service": {"encoders", "gallery"},
    "reports": set(),
    "theory": {"geometry"},
    "experiments": {
        "data", "encoders", "evaluation", "geometry", "lifecycle", "methods", "reports", "scenarios", "training",
    },
    "cli": {
        "data", "encoders", "evaluation", "experiments", "gallery", "lifecycle", "methods", "metrics", "reports",
        "scenarios", "service", "theory", "training",
    },
}  # fmt: skip
PACKAGES = sorted(path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists())


def imported(file: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return names


def test_every_package_has_its_arrows():
    assert set(PACKAGES) == set(ALLOWED)


@pytest.mark.parametrize("package", PACKAGES)
def test_arrows(package):
    for file in (SOURCE / package).rglob("*.py"):
        for name in imported(file):
            top, *rest = name.split(".")
            if top == "holdfast" and rest and rest[0] in ALLOWED and rest[0] != package:
                assert rest[0] in ALLOWED[package], f"{file.name} imports {name}"


@pytest.mark.parametrize("package", ["metrics", "reports"])
def test_no_torch_where_records_are_read(package):
    for file in (SOURCE / package).rglob("*.py"):
        assert not any(name.split(".")[0] == "torch" for name in imported(file)), file.name


def test_the_loop_knows_no_method():
    from holdfast.methods import METHODS

    for file in ("fit.py", "step.py", "train_scenario.py"):
        text = (SOURCE / "training" / file).read_text(encoding="utf-8").lower()
        for name in METHODS:
            assert name not in {word.strip("\"'") for word in text.replace("(", " ").replace(")", " ").split()}


def test_no_drawers_and_no_giants():
    for file in SOURCE.rglob("*.py"):
        assert file.stem not in ("utils", "common", "helpers", "misc"), file
        assert len(file.read_text(encoding="utf-8").splitlines()) <= 600, file


def test_public_names_resolve_and_are_documented():
    for name in holdfast.__all__:
        assert getattr(holdfast, name) is not None
        assert holdfast.__doc__ is not None
        assert name in holdfast.__doc__
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = holdfast.nothing
    assert (SOURCE / "py.typed").exists()


def test_importing_holdfast_imports_nothing_heavy():
    code = "import sys, holdfast; print(*{'torch', 'numpy', 'pydantic', 'typer'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == ""


def test_every_module_has_a_docstring():
    extras = {"holdfast.training.kernels.": "triton", "holdfast.service.": "fastapi"}
    missing = tuple(start for start, needed in extras.items() if importlib.util.find_spec(needed) is None)
    for module in pkgutil.walk_packages([str(SOURCE)], "holdfast."):
        if module.name != "holdfast.__main__" and not module.name.startswith(missing):
            assert importlib.import_module(module.name).__doc__, module.name


def test_every_method_has_a_card_and_a_recipe():
    from holdfast.methods import METHODS

    root = SOURCE.parents[1]
    for name, method in METHODS.items():
        card = (root / "docs" / "methods" / f"{name}.md").read_text(encoding="utf-8")
        for part in ("**Idea.**", "**Loss", "**Kept between tasks.**", "**Extra cost.**", "**Deviations.**"):
            assert part in card, (name, part)
        assert bool(method.reconstruction) == ("reconstruction" in card or "adapted" in card), name
        assert (root / "recipes" / "cifar100-10" / f"{name}.toml").exists()
