"""The paper's figures that are drawn anew each time: schematics, theory, and the toy from its committed runs."""

from pathlib import Path
from typing import Any

from holdfast.recipes.paper_figures import PAPER_FIGURES
from holdfast.reproduction.exhibit import Exhibit, Figure

CAPTIONS = {
    "fig1": "An update seen from the prototypes: caps before and after, from points really sampled on them.",
    "fig2": "Pairs of the same and of different classes before and after an update, with their expected distances.",
    "fig3": "The toy on MNIST: cross-entropy alone against HOC, one run each, total loss and the cross-entropy part.",
    "fig5": "Who owns which vertex: the slot registry over 7 tasks with two replacements.",
    "fig11": "Proposition 2: the density at the expected angle, over dimensions and numbers of classes.",
    "fig12": "Theorem 1: expected distances over dimensions, Monte Carlo beside the closed form.",
}


def _exhibit(name: str) -> Exhibit:
    def draw(data: Any, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        PAPER_FIGURES[name](path)

    trained = "one run of each loss, results/theory/toy-mnist.json" if name == "fig3" else "drawn, not trained"
    return Exhibit(
        f"Figure {name.removeprefix('fig')}: {trained}",
        cells=list,
        rows=lambda results, selection: [],
        tables=lambda results, selection: [],
        figures=lambda results: [Figure(name, CAPTIONS[name], None, draw)],
    )


DRAWN = {name: _exhibit(name) for name in CAPTIONS}
