"""Write docs/results/serving-both.md from the records in results/upgrades.

python -m papers.upgrades.page results/upgrades docs/results/serving-both.md
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.core.storage import write_text
from holdfast.reports.compare_report import compare_headline, compare_rows
from papers.upgrades.collections import MODELS, SETS, TITLES
from papers.upgrades.weights import default_weight, weight_of_others

HEADS = ("way", "score %", "gain over keeping, points", "of re-embedding %", "now", "per query", "ms", "storage")


def titled(name: Sequence[str]) -> str:
    return f"{TITLES[name[0]]}, {MODELS[name[1]]} to {MODELS[name[2]]}"


def took(found: dict[str, Any]) -> str:
    """How long a comparison ran, on two cores that other work shared."""
    seconds = f"{found['seconds']:g} s"
    return seconds if "cpu_seconds" not in found else f"{seconds}, {found['cpu_seconds']:g} s of processor time"


def percent(value: float) -> str:
    return f"{100 * value:.1f}"


def interval(gain: Sequence[float]) -> str:
    value, low, high = (100 * part for part in gain)
    return f"{value:+.1f} ({low:+.1f} to {high:+.1f})"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in (heads, *rows)]
    return "\n".join([lines[0], "|---|" + "--:|" * (len(heads) - 1), *lines[1:]])


def ways_of(case: dict[str, Any], cases: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    """Title and key of the rows of a case, with the weights that the other collections chose."""
    weight = weight_of_others(cases, case["name"][0])
    blend = weight_of_others(cases, case["name"][0], "blend ")
    rows = [("keep the old model", "keep"), ("bridge", "bridge"), (f"blend ({blend:g})", f"blend {blend:g}")]
    for source, by in (("old", "old query"), ("bridge", "bridged query"), ("both", "both queries")):
        for count in (20, 50, 100):
            rows += [
                (f"two-stage@{count}, {by}, new score", f"{source}@{count} 1"),
                (f"two-stage@{count}, {by}, both scores ({weight:g})", f"{source}@{count} {weight:g}"),
            ]
    return [*rows, ("re-embed everything", "re-embed")]


def summary(cases: Sequence[dict[str, Any]], every: Sequence[dict[str, Any]]) -> str:
    """One row per replacement; the weights come from ``every`` case, logs of queries too."""
    rows = []
    for case in cases:
        ways, weight = case["ways"], weight_of_others(every, case["name"][0])
        both = f"old@50 {weight:g}"
        rows.append(
            [
                titled(case["name"]),
                *(percent(ways[way]["score"]) for way in ("keep", "bridge", "re-embed", "old@50 1", both)),
                interval(ways[both]["gain"]),
                f"{weight:g}",
                percent(ways["bridge@100 1"]["score"]),
            ]
        )
    names = ("keep", "bridge", "re-embed", "old@50 1")
    means = [float(np.mean([case["ways"][way]["score"] for case in cases])) for way in names]
    chosen = [case["ways"][f"old@50 {weight_of_others(every, case['name'][0]):g}"]["score"] for case in cases]
    last = float(np.mean([case["ways"]["bridge@100 1"]["score"] for case in cases]))
    rows.append(["**mean**", *(percent(mean) for mean in [*means, float(np.mean(chosen))]), "", "", percent(last)])
    heads = (
        "replacement", "keep", "bridge", "re-embed", "two-stage@50, new score", "two-stage@50, both scores",
        "its gain over keeping, points", "weight", "bridge's best 100, new score",
    )  # fmt: skip
    return table(heads, rows)


def counts(sizes: Sequence[dict[str, Any]]) -> str:
    rows = [
        [
            titled(part["name"]),
            f"{part['items']:,}",
            f"{part['pairs']:,}",
            percent(part["re-embed"]),
            *(
                f"{100 * part['scores'][part['counts'].index(count)] / part['re-embed']:.0f}"
                for count in (50, 100, 200, 400)
            ),
            "more than 1,000" if part["enough"] is None else str(part["enough"]),
        ]
        for part in sorted(sizes, key=lambda part: (part["name"], part["items"]))
    ]
    heads = ("replacement", "items", "pairs", "re-embed %", "best 50", "100", "200", "400", "reaches 95 % at")
    return table(heads, rows)


def goals(cases: Sequence[dict[str, Any]], every: Sequence[dict[str, Any]]) -> str:
    lines = []
    chosen = [(case, f"old@50 {weight_of_others(every, case['name'][0]):g}") for case in cases]
    for title, pick in (("the new score alone", lambda way: "old@50 1"), ("both scores", lambda way: way)):
        above = sum(case["ways"][pick(way)]["score"] >= case["ways"]["re-embed"]["score"] for case, way in chosen)
        gained = sum(case["ways"][pick(way)]["gain"][1] > 0 for case, way in chosen)
        lost = sum(case["ways"][pick(way)]["gain"][2] < 0 for case, way in chosen)
        lines.append(
            f"- Two-stage@50 with {title}: at or above re-embedding everything in {above} of {len(cases)} "
            f"replacements; "
            f"the whole interval of the gain over keeping above 0 in {gained}, below 0 in {lost}."
        )
    better = sum(case["ways"]["re-embed"]["gain"][1] > 0 for case in cases)
    lines.append(f"- Re-embedding everything: the whole interval above 0 in {better} of {len(cases)}.")
    worse = sum(case["ways"]["bridge"]["gain"][0] < 0 for case in cases)
    lines.append(f"- A bridge alone: below keeping in {worse} of {len(cases)}.")
    return "\n".join(lines)


def page(record: dict[str, Any], comparisons: Sequence[dict[str, Any]], extra: Sequence[str]) -> str:
    cases = [case for case in record["cases"] if not case["name"][0].endswith("-log")]
    every = record["cases"]
    titles = {name: sum(case["name"][0] == name for case in every) for name in SETS}
    parts = [
        "# Serving both models",
        "Written by `papers/upgrades/page.py` from `results/upgrades`. Real texts, human judgements, nDCG@10 in per "
        "cent; "
        "texts are cut at 128 tokens. Models: WordLlama (256 numbers), paraphrase-MiniLM-L3 (L3, 384), "
        "all-MiniLM-L6-v2 "
        "(MiniLM, 384, int8), all-mpnet-base-v2 (mpnet, 768, mostly int8). Intervals are of 95 %, over queries. A "
        "bridge "
        f"is fitted on {record['pairs']:,} documents, and its rows are means of {record['draws']} draws.",
        "**Two-stage@N**: the old query finds N candidates in the old index, and the new model scores them, alone or "
        "together with the old one. Nothing is re-embedded beforehand.",
        summary(cases, every),
        goals(cases, every),
        f"**Weights.** {default_weight(every):g} is the default weight of the new score, and "
        f"{default_weight(every, 'blend '):g} that of the bridged query in a blend: the best ones on CACM, Cranfield "
        f"and "
        "SciFact's log of queries. The tables use for each collection the weight that was best on the others, without "
        "SciFact's test queries. 8 and 5 weights were looked at.",
        f"Replacements measured: {', '.join(f'{SETS[name]} {count}' for name, count in titles.items() if count)}.",
        "## Where the old model is gone",
        "Candidates by the bridged query, scored by the new model. In per cent of re-embedding everything, by the "
        "number "
        "of candidates:",
        counts(record["sizes"]),
        "`compare` takes 6 % of the items, at least 50 and at most 1,000. A smaller index of SciFact holds every right "
        "document and others at random.",
        "## Every row",
    ]
    for case in cases:
        best = case["ways"]["re-embed"]["score"]
        rows = [
            [
                title,
                percent(case["ways"][key]["score"]),
                "–" if key == "keep" else interval(case["ways"][key]["gain"]),
                f"{100 * case['ways'][key]['score'] / best:.0f}",
            ]
            for title, key in ways_of(case, every)
        ]
        facts = f"{case['items']:,} documents, {case['queries']:,} judged queries."
        parts += [f"### {titled(case['name'])}", facts, table(HEADS[:4], rows)]
    if comparisons:
        parts += [
            "## What `holdfast compare` prints",
            "One draw of pairs (seed 0). The tested row has the weight that the other collections chose.",
        ]
    for found in comparisons:
        parts += [
            f"### compare: {titled(found['case'])}",
            f"{compare_headline(found)} {found['judged']:,} judged queries, {found['items']:,} items; {took(found)}.",
            table(HEADS, compare_rows(found)),
        ]
    return "\n\n".join([*parts, *extra]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    record = json.loads((options.results / "serving-both.json").read_text(encoding="utf-8"))
    files = sorted(options.results.glob("compare-*.json"))
    comparisons = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    write_text(options.out, page(record, comparisons, replay_section(options.results / "replay.json")))


def replay_section(file: Path) -> list[str]:
    """The replay of searches by a Zipf distribution, if it was run."""
    if not file.exists():
        return []
    found = json.loads(file.read_text(encoding="utf-8"))
    rows = [
        [
            f"{part['to']:,}", f"{part['embedded_per_search']:.1f}", percent(part["without"]),
            percent(part["keep"]), percent(part["two_stage"]), percent(part["re_embed"]),
        ]
        for part in found["parts"]
    ]  # fmt: skip
    heads = ("searches up to", "embeddings per search", "without any %", "keep", "two-stage", "re-embed")
    return ["## The index upgrades itself as it is used", found["what"], table(heads, rows), found["result"]]


if __name__ == "__main__":
    main()
