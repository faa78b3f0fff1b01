"""Shares of re-embedding, worked out from the records of runs."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.core.wording import with_options
from papers.quarters.execute import Results, StudyRun
from papers.quarters.strategies import CEILING, STRATEGIES, Strategy

LAGS = (1, 2, 3, 4)


class Records:
    """The records of one study, by strategy and seed."""

    def __init__(self, results: Path, study: str, seeds: Sequence[int], strategies: Sequence[Strategy] = STRATEGIES):
        found = Results(results)
        self.study, self.strategies = study, strategies
        self.by_seed: dict[str, dict[int, dict[str, Any]]] = {}
        for strategy in strategies:
            runs = {seed: found.record(StudyRun(study, strategy, seed)) for seed in seeds}
            self.by_seed[strategy.name] = {seed: record for seed, record in runs.items() if record is not None}

    def seeds(self, strategy: str) -> list[int]:
        """The seeds at which both the strategy and the ceiling were run."""
        return [seed for seed in self.by_seed.get(strategy, {}) if seed in self.by_seed.get(CEILING, {})]

    def table(self, strategy: str, seed: int, table: str) -> dict[str, Any]:
        found: dict[str, Any] = self.by_seed[strategy][seed]["tables"][table]
        return found

    def own(self, strategy: str, table: str, score: str) -> list[float]:
        """The last version on its own gallery, for each seed."""
        return [self.table(strategy, seed, table)["own"][-1][score] for seed in self.seeds(strategy)]

    def gains(self, strategy: str, table: str, score: str) -> list[float]:
        """The last version on its own gallery, less unconstrained fine-tuning at the same seed."""
        return [
            self.table(strategy, seed, table)["own"][-1][score] - self.table(CEILING, seed, table)["own"][-1][score]
            for seed in self.seeds(strategy)
        ]

    def kept(self, strategy: str, table: str, lag: int, score: str, *, of_same: bool = False) -> list[float]:
        """The share of re-embedding that is kept at a lag, for each seed: the mean over all pairs of versions.

        of_same: divide by the same model with everything re-embedded, not by unconstrained fine-tuning. For strategies
            that never update there is only one model, and the lag is the number of updates that were left out.
        """
        shares = []
        for seed in self.seeds(strategy):
            found, ceiling = self.table(strategy, seed, table), self.table(CEILING, seed, table)["own"]
            divisor = found["own"] if of_same else ceiling
            cells = found["cells"] or [
                {"queries": 1 + lag, "gallery": 1, score: found["own"][0][score]} for lag in range(1, len(ceiling))
            ]
            at_lag = [cell for cell in cells if cell["queries"] - cell["gallery"] == lag]
            shares.append(statistics.fmean(cell[score] / divisor[cell["queries"] - 1][score] for cell in at_lag))
        return shares

    def mixed(self, strategy: str, table: str, score: str) -> list[float]:
        """A score in the gallery that grew over all versions, for each seed."""
        return [self.table(strategy, seed, table)["mixed"][score] for seed in self.seeds(strategy)]

    def mixed_kept(self, strategy: str, table: str, score: str) -> list[float]:
        """The same as a share of unconstrained fine-tuning with everything re-embedded."""
        return [
            self.table(strategy, seed, table)["mixed"][score] / self.table(CEILING, seed, table)["own"][-1][score]
            for seed in self.seeds(strategy)
        ]

    def exposures(self, strategy: str, table: str) -> list[list[float]]:
        """The exposure ratios at 10 for each seed, oldest version first."""
        return [self.table(strategy, seed, table)["mixed"]["exposure@10"] for seed in self.seeds(strategy)]

    def bridges(self, strategy: str, table: str) -> list[str]:
        """The bridges that were chosen, such as "rotation (rank 256)", one for each pair of versions and seed."""
        return [
            chosen_map(cell["bridge"])
            for seed in self.seeds(strategy)
            for cell in self.table(strategy, seed, table)["cells"]
            if "bridge" in cell
        ]


def chosen_map(bridge: Mapping[str, Any]) -> str:
    """The kind of a recorded bridge and its options, such as "rotation (centred, rank 256)"; "no map" for none."""
    options = {name: value for name, value in bridge.items() if name not in ("kind", "seconds")}
    return "no map" if bridge["kind"] == "none" else with_options(bridge["kind"], options)


def spread(values: Sequence[float], *, factor: float = 100, digits: int = 1) -> str:
    """Mean and standard deviation over seeds, such as 98.1±0.4; the mean alone for one seed, a dash for none."""
    if not values:
        return "–"
    mean = f"{factor * statistics.fmean(values):.{digits}f}"
    return mean if len(values) < 2 else f"{mean}±{factor * statistics.stdev(values):.{digits}f}"
