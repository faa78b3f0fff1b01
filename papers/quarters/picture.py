"""The picture of the study: the share of re-embedding kept against lag, one line per strategy."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from papers.quarters.shares import LAGS, Records
from papers.quarters.strategies import STRATEGIES
from papers.quarters.study_data import UNSEEN
from papers.stationary.cifar_runs import OURS
from papers.stationary.plots import METHODS, look, new_figure, plain_axis, save

METHOD_OF = {"cvs": "cvs", "fan": "fan", "distillation": "distillation", "turned": "simplex_hoc", "ours": OURS}
"""Training -> method, which has the colour and marker of the paper's figures. Here a dashed line is a bridge."""
LOOK_OF = {
    "never": {"color": "#8a9196", "marker": "P"},
    "plain": look(1),
    **{training: look(METHODS.index(method)) for training, method in METHOD_OF.items()},
}
SHOWN = (
    "never", "plain", "plain-bridge", "cvs", "fan", "distillation", "distillation-bridge", "turned", "turned-bridge",
    "ours", "ours-bridge",
)  # fmt: skip
LOWEST = 0.75
"""A line that lies below this share is named in the legend and not drawn: it would hide what differs above it."""


def kept_lines(records: Records) -> dict[str, list[float]]:
    """Title of a strategy -> mean share of mAP kept at lag 1 to 4, on unseen classes; strategies with results only."""
    titles = {strategy.name: strategy.title for strategy in STRATEGIES}
    return {
        titles[name]: [statistics.fmean(records.kept(name, UNSEEN, lag, "mAP")) for lag in LAGS]
        for name in SHOWN
        if records.seeds(name)
    }


def draw_kept(lines: Mapping[str, Sequence[float]], path: Path) -> None:
    """One line per strategy on a white ground, which is readable on dark pages too. A bridge is a dashed line."""
    titles = {strategy.title: strategy.name for strategy in STRATEGIES}
    figure = new_figure(8.2, 4.2)
    axis = figure.subplots()
    axis.axhline(100, color="#8a9196", linewidth=0.9, linestyle=":")
    for title, shares in lines.items():
        name = titles[title]
        training = name.removesuffix("-bridge")
        bridged = name != training
        drawn = max(shares) >= LOWEST
        label = title if drawn else f"{title}: {100 * shares[0]:.0f} to {100 * shares[-1]:.0f} (not drawn)"
        axis.plot(
            LAGS if drawn else [], [100 * share for share in shares if drawn], label=label, **LOOK_OF[training],
            markersize=8 if bridged else 5, markerfacecolor="none" if bridged else None,
            linestyle="--" if bridged else "-", linewidth=2.4 if training == "turned" else 1.3,
        )  # fmt: skip
    axis.set_xticks(LAGS)
    plain_axis(axis, "updates since the index was built", "mAP kept, % of re-embedding everything")
    figure.legend(loc="outside right center", frameon=False, fontsize=9)
    save(figure, path, dict(lines))
