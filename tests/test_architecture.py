"""The arrows of ARCHITECTURE.md, the lazy imports and the public surface, kept honest by reading the source."""

import ast
import graphlib
import importlib
import importlib.util
import pkgutil
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

import holdfast
from holdfast.cli import SECTIONS

SOURCE = Path(holdfast.__file__).parent

# The lines of ARCHITECTURE.md: a package imports from packages above it only; ``train`` and its parts as listed.
INDEX_SIDE = (
    "core", "vectors", "metrics", "bridges", "upgrade", "reports", "checks", "embedders", "gallery", "service",
)  # fmt: skip
TRAIN = {
    "geometry": set(),
    "losses": {"geometry"},
    "methods": {"losses", "geometry"},
    "data": set(),
    "scenarios": {"data"},
    "encoders": {"data", "geometry"},
    "evaluation": {"encoders", "geometry", "scenarios"},
    "engine": {"methods", "scenarios", "encoders", "data", "geometry"},
    "experiments": {"data", "encoders", "engine", "evaluation", "geometry", "methods", "scenarios"},
    "versions": {
        "data", "encoders", "engine", "evaluation", "experiments", "geometry", "losses", "methods", "scenarios",
    },
}  # fmt: skip
TRAIN_MAY_IMPORT = set(INDEX_SIDE) - {"gallery", "service"}
TORCH_OUTSIDE_TRAIN = {"vectors/neighbours.py", "embedders/image_encoder.py"}
TRAIN_OUTSIDE = {"embedders/image_encoder.py"}


def source_files(package: str) -> Iterator[Path]:
    return (SOURCE / package).rglob("*.py")


def imported(file: Path) -> set[str]:
    """Modules that a file imports, also inside functions, but not for type checkers alone."""
    return _imported(ast.parse(file.read_text(encoding="utf-8")))


def _imported(tree: ast.AST) -> set[str]:
    names = set()
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        names |= _imported(node)
    return names


def imported_packages(file: Path) -> set[str]:
    """The packages of Holdfast that a file imports, also inside functions."""
    return {name.split(".")[1] for name in imported(file) if name.startswith("holdfast.")}


def test_every_package_is_in_the_picture():
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert packages <= {*INDEX_SIDE, "cli", "train"}
    assert {path.parent.name for path in SOURCE.glob("train/*/__init__.py")} == set(TRAIN)


@pytest.mark.parametrize("package", INDEX_SIDE)
def test_arrows_of_the_index_side(package):
    above = {*INDEX_SIDE[: INDEX_SIDE.index(package) + 1], "train"}  # which files import train: a test below
    for file in source_files(package):
        assert imported_packages(file) <= above, file


@pytest.mark.parametrize("part", TRAIN)
def test_arrows_of_training(part):
    for file in source_files(f"train/{part}"):
        assert imported_packages(file) <= TRAIN_MAY_IMPORT | {"train"}, file
        parts = {name.split(".")[2] for name in imported(file) if name.startswith("holdfast.train.")}
        assert parts & TRAIN.keys() <= TRAIN[part] | {part}, file


def outside_train() -> Iterator[Path]:
    return (file for file in SOURCE.rglob("*.py") if file.relative_to(SOURCE).parts[0] != "train")


def names_of(files: Iterator[Path], wanted: Callable[[str], bool]) -> set[str]:
    """The files, relative to the package, that import a module for which ``wanted`` is true."""
    return {file.relative_to(SOURCE).as_posix() for file in files if any(wanted(name) for name in imported(file))}


def is_of(module: str, name: str) -> bool:
    return name.split(".")[0] == module


def test_one_door_to_torch():
    """Outside ``train`` only the search on a GPU and the adapter of image encoders import torch."""
    assert names_of(outside_train(), partial(is_of, "torch")) == TORCH_OUTSIDE_TRAIN


def test_one_door_to_train():
    """The command line and the adapter of image encoders import ``train``, nothing else does."""
    users = names_of(outside_train(), lambda name: (name + ".").startswith("holdfast.train."))
    assert {name for name in users if not name.startswith("cli/")} == TRAIN_OUTSIDE


def test_what_the_core_does_not_have_is_imported_by_few():
    """pandas, scipy and matplotlib by nothing; Pillow where images are read; pydantic for requests over HTTP."""
    modules = ("scipy", "matplotlib", "pandas", "PIL", "pydantic", "tomli_w")
    found = {module: names_of(outside_train(), partial(is_of, module)) for module in modules}
    assert not found["scipy"] | found["matplotlib"] | found["pandas"] | found["tomli_w"]
    assert all(name.startswith("service/") for name in found["pydantic"])
    assert found["PIL"] <= {"embedders/pixels.py", "embedders/model_inputs.py", "cli/demo_story.py"}


@pytest.mark.parametrize(
    ("statement", "without"),
    [
        ("from holdfast import Bridge, check, check_mixed, check_history, nearest", ("torch", "PIL", "rich", "typer")),
        ("from holdfast import Gallery, Item", ("torch", "PIL", "rich", "typer", "qdrant_edge")),
        ("from holdfast.reports import check_report, html_page", ("torch", "PIL", "rich", "jinja2")),
        ("from holdfast import compatibility_summary", ("torch", "PIL")),
        ("import holdfast.service", ("torch",)),
        ("import holdfast.cli", ("torch", "PIL", "numpy", "pydantic")),
    ],
)
def test_the_index_side_is_imported_without(statement, without):
    """In a process in which importing these, or scipy or matplotlib, fails."""
    refused = (*without, "scipy", "matplotlib")
    code = f"import sys\nfor name in {refused}: sys.modules[name] = None\n{statement}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert not done.returncode, done.stderr[-2000:]


def test_the_loop_knows_no_method():
    from holdfast.train.methods import METHODS

    for file in ("fit.py", "step.py", "train_scenario.py"):
        text = (SOURCE / "train" / "engine" / file).read_text(encoding="utf-8").lower()
        for name in METHODS:
            assert name not in {word.strip("\"'") for word in text.replace("(", " ").replace(")", " ").split()}


def modules() -> dict[str, Path]:
    found = {}
    for file in SOURCE.rglob("*.py"):
        parts = file.relative_to(SOURCE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


def imported_modules(node: ast.AST, known: dict[str, Path]) -> set[str]:
    """Modules that the tree imports, also inside functions, but not for type checkers alone."""
    names: set[str] = set()
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING":
            continue
        if isinstance(child, ast.ImportFrom) and child.module:
            names |= {
                full if (full := f"{child.module}.{alias.name}") in known else child.module for alias in child.names
            }
        elif isinstance(child, ast.Import):
            names |= {alias.name for alias in child.names}
        names |= imported_modules(child, known)
    return names


def test_no_import_cycles():
    """Also none that an import inside a function hides."""
    known = modules()
    imports = {
        name: imported_modules(ast.parse(file.read_text("utf-8")), known) & known.keys() for name, file in known.items()
    }
    try:
        tuple(graphlib.TopologicalSorter(imports).static_order())
    except graphlib.CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


def functions_with_many_parameters() -> Iterator[tuple[Path, str, list[str], str]]:
    """File, name, parameters and docstring of each function with more than eight; of ``__init__`` the class's.

    The name of a method begins with its class's.
    """
    for file in SOURCE.rglob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        classes = {id(part): node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for part in node.body}
        for node in ast.walk(tree):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            if any("jit" in ast.unparse(decorator) for decorator in node.decorator_list):
                continue  # a Triton kernel gets every address and size as an argument
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            names = [one.arg for one in arguments if one.arg not in ("self", "cls")]
            owner = classes.get(id(node))
            documented = owner if owner is not None and node.name == "__init__" else node
            if len(names) > 8:
                of_class = f"{owner.name}." if owner is not None and documented is node else ""
                yield file, of_class + documented.name, names, ast.get_docstring(documented) or ""


def test_functions_take_at_most_eight_parameters():
    """More only in public functions and methods of public classes that say what each parameter is, and in verbs, where
    ``--help`` says it."""
    from holdfast import gallery
    from holdfast.train.data import DATASETS
    from holdfast.train.methods import METHODS
    from holdfast.train.scenarios import SCENARIOS

    public = {*holdfast.__all__, *DATASETS, *SCENARIOS, *(method.__name__ for method in METHODS.values())}
    public |= set(gallery.__all__)
    for file, name, parameters, docstring in functions_with_many_parameters():
        if file.parent == SOURCE / "cli" and "typer.Option" in file.read_text(encoding="utf-8"):
            continue
        assert name.partition(".")[0] in public, f"{file}: {name} takes {len(parameters)} parameters and is not public"
        missing = [one for one in parameters if not re.search(rf"\b{one}\b", docstring)]
        assert not missing, f"{file}: the docstring of {name} does not say what {', '.join(missing)} is"


def test_no_drawers_and_no_giants():
    for file in SOURCE.rglob("*.py"):
        assert file.stem not in ("utils", "common", "helpers", "misc"), file
        assert len(file.read_text(encoding="utf-8").splitlines()) <= 600, file


def test_a_name_is_of_one_file_and_of_one_class():
    """A verb's file has the verb's name, which is often that of the module that does the work. A method has the name of
    its key, its card and its test."""
    verbs = {name.replace("-", "_") for names in SECTIONS.values() for name in names}
    files, classes = Counter[str](), Counter[str]()
    for file in SOURCE.rglob("*.py"):
        if file.name != "__init__.py" and not (file.parent.name == "cli" and file.stem in verbs):
            files[file.name] += 1
        if file.name != "openapi_schema.py":  # its classes are named as the records of HTTP that they describe
            tree = ast.parse(file.read_text(encoding="utf-8"))
            classes.update(node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    twice = {name for name, times in (files + classes).items() if times > 1}
    assert not twice


def test_public_names_resolve_and_are_documented():
    before_the_stub = {
        "METHODS", "DSimplex", "Encoder", "FitOptions", "Gallery", "HoldfastError", "ImageSet", "Preprocess",
        "SlotRegistry", "VectorInput", "average_accuracy", "average_compatibility",
        "average_compatible_accuracy", "build_backbone", "check", "check_history", "cl2r", "compatibility_matrix",
        "compatibility_summary", "feature_distillation", "fit", "hoc_loss", "iam_cl2r", "info_nce", "load_split",
        "load_weights", "nearest", "read_dataset", "run_recipe", "simplex_cross_entropy",
    }  # fmt: skip
    assert before_the_stub <= set(holdfast.__all__)
    for name in holdfast.__all__:
        assert getattr(holdfast, name).__doc__, name
    with pytest.raises(AttributeError, match="nothing"):
        _ = holdfast.nothing
    assert (SOURCE / "py.typed").exists()


def test_importing_holdfast_imports_nothing_heavy():
    """And takes less than 0.15 s of processor time."""
    code = (
        "import sys, time; began = time.process_time(); import holdfast; print(time.process_time() - began); "
        "print(*{'torch', 'numpy', 'pydantic', 'typer'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    seconds, heavy = done.stdout.splitlines()
    assert heavy == ""
    assert float(seconds) < 0.15


def test_every_module_has_a_docstring():
    extras = {"holdfast.service.": "fastapi"}
    missing = tuple(start for start, needed in extras.items() if importlib.util.find_spec(needed) is None)
    for module in pkgutil.walk_packages([str(SOURCE)], "holdfast."):
        if module.name != "holdfast.__main__" and not module.name.startswith(missing):
            assert importlib.import_module(module.name).__doc__, module.name


def test_every_method_has_a_card():
    from holdfast.train.methods import METHODS

    root = SOURCE.parents[1]
    for name, method in METHODS.items():
        card = (root / "docs" / "methods" / f"{name}.md").read_text(encoding="utf-8")
        for part in ("**Idea.**", "**Loss", "**Kept between tasks.**", "**Extra cost.**", "**Deviations.**"):
            assert part in card, (name, part)
        assert bool(method.reconstruction) == ("reconstruction" in card or "adapted" in card), name
