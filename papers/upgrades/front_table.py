"""The README's table, from records: ``python -m papers.upgrades.front_table results/upgrades`` prints it."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from papers.upgrades.weights import weight_of_others

HEADS = ("", "text: nDCG@10", "gain", "photographs: first hit right", "gain", "embedded now", "embedded per search")


def text_scores(cases: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Mean score in per cent over the replacements on SciFact, CACM and Cranfield, by way."""
    judged = [case for case in cases if case["name"][0] in ("scifact", "cacm", "cranfield")]
    names = {"keep": "keep", "bridge": "bridge", "re-embed": "re-embed"}
    scores = {way: [case["ways"][name]["score"] for case in judged] for way, name in names.items()}
    weights = [weight_of_others(cases, case["name"][0]) for case in judged]
    scores["two-stage"] = [
        case["ways"][f"old@50 {weight:g}"]["score"] for case, weight in zip(judged, weights, strict=True)
    ]
    return {way: 100 * float(np.mean(values)) for way, values in scores.items()}


def photograph_ways(comparison: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The rows of the comparison on photographs, by way."""
    ways = {way["name"]: way for way in comparison["ways"]}
    return {**ways, "two-stage": ways[comparison["tested"]]}


def front_table(folder: Path) -> str:
    """The table in Markdown. folder: with serving-both.json and compare-cub-lite0-lite2.json."""
    texts = text_scores(json.loads((folder / "serving-both.json").read_text(encoding="utf-8"))["cases"])
    photographs = photograph_ways(json.loads((folder / "compare-cub-lite0-lite2.json").read_text(encoding="utf-8")))
    rows = []
    for way, name, now, later in (
        ("keep", "keep the old model", "0", "0"),
        ("swap", "swap: new queries, old vectors", "0", "0"),
        ("bridge", "bridge: new queries through a map", "1,000", "0"),
        ("two-stage", "**two-stage: the new model scores the old one's best 50**", "0", "50, then fewer"),
        ("re-embed", "re-embed everything", "all", "0"),
    ):
        text = ("–", "–") if way not in texts else (f"{texts[way]:.1f}", f"{texts[way] - texts['keep']:+.1f}")
        score = f"{100 * photographs[way]['score']['value']:.1f}"
        gain = photographs[way]["gain"]
        gained = "–" if gain is None else f"{100 * gain['value']:+.1f}"
        rows.append((name, text[0], "–" if way == "keep" else text[1], score, gained, now, later))
    lines = [f"| {' | '.join(row)} |" for row in (HEADS, *rows)]
    return "\n".join([lines[0], "|---|" + "--:|" * (len(HEADS) - 1), *lines[1:]])


def main() -> None:
    parser = argparse.ArgumentParser(description="Print the README's table.")
    parser.add_argument("folder", type=Path)
    sys.stdout.write(front_table(parser.parse_args().folder) + "\n")


if __name__ == "__main__":
    main()
