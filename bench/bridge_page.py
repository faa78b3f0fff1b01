"""Write docs/results/bridges.md from the figures in results/bench.

python bench/bridge_page.py [--out FILE]
"""

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from bridge_quality import KINDS as CURRENT_KINDS

from holdfast.core.environment import short_commit
from holdfast.core.wording import with_options

KINDS = {**CURRENT_KINDS, "lambda_orthogonal": ("lambda_orthogonal", {}), "residual_mlp": ("residual_mlp", {})}
"""Also the two kinds that were measured and are no longer offered."""
ROOT = Path(__file__).parents[1]
FIGURES = ROOT / "results" / "bench"
PAGE = ROOT / "docs" / "results" / "bridges.md"

PAIRS = {
    "cub-lite0-lite1": "CUB-200-2011, EfficientNet-lite0 to lite1 (1,280 to 1,280 numbers)",
    "cub-lite0-lite2": "CUB-200-2011, EfficientNet-lite0 to lite2 (1,280 to 1,280 numbers)",
    "debian-tfidf384-wordllama256": "Debian's package descriptions, TF-IDF + SVD to WordLlama (384 to 256 numbers)",
    "debian-wordllama64-wordllama256": "Debian's package descriptions, WordLlama cut at 64 to 256 numbers",
    "debian-wordllama64-tfidf384": "Debian's package descriptions, WordLlama to TF-IDF + SVD (64 to 384 numbers)",
}
METHODS = {
    "er": "ER",
    "bct": "BCT-ER",
    "lce": "LCE-ER",
    "cvs": "CVS",
    "fan": "FAN",
    "advbct": "AdvBCT-ER",
    "simplex_fd": "d-Simplex-FD",
    "simplex_hoc": "d-Simplex-HOC",
    "simplex_hoc_views": "ours",
}

HEAD = """# What bridges keep of a re-embedding

A bridge maps a new model's queries into the space of an old model's stored vectors. It is fitted on pairs:
items that both models embedded. This page compares it with no map and with re-embedding everything. No labels
are used for fitting, only to measure. [bridges.md](../bridges.md) says how to use one.

Photographs: the 5,794 test images of CUB-200-2011 with ImageNet weights, nothing trained. Text: 20,000
descriptions of Debian packages, with their section as the class. Half of each class are queries, half the
gallery (at most 3,000 each). Means over {seeds} seeds of the split and of the choice of pairs; on CUB, affine,
`lambda_orthogonal` and `residual_mlp` at one seed only. Written by `python bench/bridge_page.py` from files
that `python bench/bridge_quality.py OLD.npz NEW.npz` made ({hardware}).

Kinds: `rotation` (Procrustes), `affine` with its ridge strength, `lambda_orthogonal`, `residual_mlp`, `local`
(a rotation and the residuals of the nearest pairs). `lambda_orthogonal` and `residual_mlp`, which are trained by
gradient steps, won once and by at most 1.3 points; they are no longer offered. `auto` is what Holdfast chooses
on held-out pairs; it compares none, rotation, affine and local. All five pairs of models were seen while `local`'s
defaults and the way of merging scores were chosen, so that these figures may be slightly too good.
"""

WHOLE = """## The gallery holds old vectors only

Top-1 of the new model's queries on the old model's vectors, in per cent of the top-1 after re-embedding.
Columns: number of pairs. A share above 100 % means that the bridged search finds more than the re-embedded one.
"""

COMMITS = """Files by commit, with + for uncommitted changes: {commits}.
Since then "auto" also tries a short form of the chosen map, of rank 256, if both sizes are 1,024 numbers or more,
and takes it if it is as good.
"""

MIXED = """## Half of the gallery is re-embedded

The new model searches a gallery of both versions, each with its own scores, and one ranking is made of them.
Kept: top-1 in per cent of the top-1 after re-embedding everything. Exposure at 1 and 10: the share of the first
places that old items take, divided by the share that the same items take after re-embedding; 1 is fair, the
goal is 0.8 to 1.25. "Even": half of each class is old. "By class": the old half of the gallery holds other
classes than the new one.

Ways to merge: *none*: no map, cosines as they are. *raw*: the bridge, cosines as they are. *All scores*: mean
and deviation of all scores of pairs, in both spaces over the same items. *Regression*: least squares to
re-embedded scores, highest 5 %. *Rank matching*: the score of the same rank. *Best scores*: mean and deviation
of the best scores of each query (five; fewer if the gallery is larger than the sample of pairs); Holdfast uses
this one. All scores fails where the scores of two spaces are distributed differently (text): most pairs of
items are never shown, and they decide the mean.
"""

CIFAR = """## Models trained one after another

CIFAR-100 in 7 or 16 tasks, tested on CIFAR-10 (50,000 queries, 10,000 gallery images), recipes
`cifar100-10/METHOD`, seed 0, one run each: differences under a point of AA, or under 0.1 of AC, are noise.
Bridges are fitted on 1,000 gallery images. Cells are AC / AA / ACA, for bridged queries AC-R: the same count
with the bridge in every cell, never compared with the paper's AC. FAN's plain column uses the map that FAN
trained, its bridged columns use the bridge instead.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the page of bridges from the figures.")
    parser.add_argument("--out", type=Path, default=PAGE)
    options = parser.parse_args()
    options.out.write_text(page(), encoding="utf-8")


def page() -> str:
    """The page as Markdown."""
    found = {name: json.loads((FIGURES / f"bridge_quality_{name}.json").read_text(encoding="utf-8")) for name in PAIRS}
    first = next(iter(found.values()))
    hardware = first["environment"]["processor"]
    made = Counter(short_commit(figures["environment"]["commit"]) for figures in found.values())
    commits = "; ".join(f"{count} at {commit}" for commit, count in made.items())
    parts = [HEAD.format(seeds=len(first["seeds"]), hardware=hardware), COMMITS.format(commits=commits), WHOLE]
    for name, figures in found.items():
        parts += [f"### {PAIRS[name]}\n", whole_table(figures["whole"])]
    parts.append(MIXED)
    for name, figures in found.items():
        parts += [f"### {PAIRS[name]}\n", mixed_table(figures["mixed"])]
    cifar = json.loads((FIGURES / "bridges_cifar-h200.json").read_text(encoding="utf-8"))
    parts += [CIFAR, cifar_table(cifar["rows"])]
    return "\n".join(parts)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def whole_table(rows: list[dict[str, Any]]) -> str:
    counts = sorted({row["pairs"] for row in rows if row["pairs"]})
    kinds = list(dict.fromkeys(row["kind"] for row in rows if row["kind"] != "none"))

    def kept(kind: str, count: int) -> list[float]:
        return [row["top1"] / row["reembedded"] for row in rows if (row["kind"], row["pairs"]) == (kind, count)]

    old, again = (mean(row[name] for row in rows) for name in ("old_model", "reembedded"))
    lines = [[row_name(kind), *(per_cent(mean(kept(kind, count))) for count in counts)] for kind in kinds]
    autos = [(row["pairs"], with_options(row["chosen"], row["options"])) for row in rows if row["kind"] == "auto"]
    chosen = ["/".join(dict.fromkeys(kind for pairs, kind in autos if pairs == count)) for count in counts]
    lines.append(["auto chose", *chosen])
    unmapped = [row["top1"] / row["reembedded"] for row in rows if row["kind"] == "none"]
    plain = f"{per_cent(mean(unmapped))} % of it without a map" if unmapped else "without a map the sizes differ"
    sentence = f"Old model on its own vectors {per_cent(old)} %, re-embedded {per_cent(again)} %; {plain}.\n"
    return f"{sentence}\n{table(['kept, %', *(f'{count:,}' for count in counts)], lines)}"


def row_name(kind: str) -> str:
    """The text for a kind as the figures name it; "auto" is not changed."""
    return with_options(*KINDS[kind]) if kind in KINDS else kind


def mixed_table(rows: list[dict[str, Any]]) -> str:
    cases = list(dict.fromkeys((row["layout"], row["pairs"]) for row in rows))
    rules = list(dict.fromkeys(row["rule"] for row in rows))
    lines = []
    for rule in rules:
        cells = []
        for case in cases:
            own = [row for row in rows if (row["layout"], row["pairs"], row["rule"]) == (*case, rule)]
            kept = mean(row["top1"] / row["reembedded"] for row in own)
            shown = (mean(row["exposure"][k] for row in own) for k in ("1", "10"))
            cells.append(f"{per_cent(kept)}, {', '.join(f'{ratio:.2f}' for ratio in shown)}")
        lines.append([f"**{rule}**" if rule == "best scores" else rule, *cells])
    header = [f"{layout}, {count:,} pairs" for layout, count in cases]
    return f"Kept in per cent, exposure at 1, exposure at 10.\n\n{table(['', *header], lines)}"


def cifar_table(rows: list[dict[str, Any]]) -> str:
    lines = []
    for row in sorted(rows, key=lambda row: (row["tasks"], list(METHODS).index(row["method"]))):
        auto = row["auto"]
        kind = with_options(auto["kind"], auto["options"])
        for protocol in ("template", "instance"):
            cells = [triple(row[way][protocol]) for way in ("plain", "rotation", "auto")]
            lines.append([METHODS[row["method"]], str(row["tasks"]), protocol, *cells, kind])
    return table(["method", "tasks", "protocol", "plain", "rotation", "auto", "auto chose"], lines)


def triple(scores: dict[str, float | None]) -> str:
    aca = scores["ACA"] or 0
    return f"{scores['AC']:.2f} / {per_cent(scores['AA'] or 0)} / {per_cent(aca)}"


def per_cent(value: float) -> str:
    return f"{100 * value:.1f}"


if __name__ == "__main__":
    main()
