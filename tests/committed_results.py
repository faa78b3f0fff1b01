"""What docs say of the committed results: the texts, the scores, and the paper's numbers."""

import json
import statistics
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def told(page: str) -> str:
    """A page as one line."""
    return " ".join((ROOT / "docs" / page).read_text(encoding="utf-8").split())


def scores(path: str, protocol: str = "template") -> dict:
    return json.loads((ROOT / "results" / path).read_text(encoding="utf-8"))["protocols"][protocol]


def self_tests(path: str) -> list[float]:
    """In per cent, per model."""
    return [100 * row[i] for i, row in enumerate(scores(path)["matrix"])]


def over_seeds(pattern: str, name: str, protocol: str = "template") -> float:
    """The mean of a score over the files of a pattern below results."""
    files = sorted((ROOT / "results").glob(pattern))
    return statistics.fmean(scores(str(path), protocol)[name] for path in files)


def of_paper_set(method: str, tasks: int, protocol: str = "template") -> dict:
    return scores(f"cifar100-10/paper/{method}-t{tasks}-natural-s0.json", protocol)


def of_tuned_set(method: str, tasks: int, name: str, protocol: str = "template") -> float:
    return over_seeds(f"cifar100-10/tuned/{method}-t{tasks}-natural-s*.json", name, protocol)


def paper_table(name: str) -> dict:
    return tomllib.loads((ROOT / f"papers/stationary/paper/{name}.toml").read_text(encoding="utf-8"))
