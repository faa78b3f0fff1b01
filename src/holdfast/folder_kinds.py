"""What a folder holds, where a finished run was expected: told by the files that only one kind has."""

import tomllib
from pathlib import Path

from holdfast.errors import HoldfastError
from holdfast.run_folder import RunFolder

NAMED = 4


def no_finished_run(path: Path | str) -> HoldfastError:
    """The refusal of ``path``, which has no record of a run: what it is instead, and which command fits."""
    return HoldfastError(f"{path}: {_kind(Path(path))}")


def _kind(path: Path) -> str:
    if not path.exists():
        return "not a run folder: there is nothing of that name"
    if not path.is_dir():
        return "a file, not a run folder"
    if (path / "catalogue.sqlite").exists():
        return f"a gallery, not a run; holdfast gallery stats {path} tells of it"
    if (path / "update.json").exists():
        return _version(path)
    if (path / "config.json").exists():
        return _model(path)
    if RunFolder(path).recipe.exists():
        return _begun(RunFolder(path))
    runs = sorted(one.name for one in path.iterdir() if RunFolder(one).metrics.exists())
    if runs:
        more = f" and {len(runs) - NAMED} more" if len(runs) > NAMED else ""
        return f"not a run folder, but holds some; name them: {', '.join(runs[:NAMED])}{more}"
    return "not a run folder (no recipe.toml in it)"


def _version(path: Path) -> str:
    if not (path / "seal.json").exists():
        return "a version whose training is not finished, not a run; the same holdfast start or update goes on with it"
    evidence = path / "check.html"
    judged = f"{evidence} has its verdict" if evidence.exists() else "holdfast update judges the version after it"
    return f"a version made by holdfast start or update, not a run; {judged}"


def _model(path: Path) -> str:
    run = RunFolder(path.resolve().parent.parent)
    if run.models == path.resolve().parent and run.recipe.exists():
        shown = path.parent.parent if len(path.parts) > 2 else run.path
        return f"one model of a run; give the run's folder, {shown}"
    return "a model, not a run; holdfast check compares what two models make of the same queries"


def _begun(folder: RunFolder) -> str:
    try:
        trains_one_model = "scenario" not in tomllib.loads(folder.recipe.read_text(encoding="utf-8"))
    except (ValueError, OSError):
        return f"recipe.toml in it is not readable, and {folder.metrics.name} is missing"
    if trains_one_model:
        return "a model whose training is not finished, not a run; the same holdfast pretrain goes on with it"
    return f"a run that is not finished; holdfast run RECIPE --out {folder.path} --resume goes on with it"
