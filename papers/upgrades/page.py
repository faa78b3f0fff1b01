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
from papers.upgrades.candidate_rule import (
    FEWEST,
    FITTED_SETS,
    SHARES,
    SHOWN,
    candidates_for,
    first_enough,
    fitted_share,
    reached,
)
from papers.upgrades.collections import MODELS, PHOTOGRAPHS, SETS, TITLES
from papers.upgrades.weights import default_weight, weight_of_others

HEADS = ("way", "score %", "gain over keeping, points", "of re-embedding %", "now", "per query", "ms", "storage")
PARTS_OF_TIME = ("processor_ms", "fastest_ms")


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
    """The share of re-embedding by the number of the bridge's candidates; means over the draws."""
    rows = []
    share = fitted_share(sizes)
    for part in sorted(sizes, key=lambda part: (part["name"], part["items"])):
        means = np.mean(part["scores"], axis=0) / part["re-embed"]
        by_rule = candidates_for(share, part["items"])
        first = first_enough(part)
        rows.append(
            [
                titled(part["name"]),
                f"{part['items']:,}",
                f"{part['pairs']:,}",
                percent(part["re-embed"]),
                *(f"{100 * means[part['counts'].index(count)]:.0f}" for count in SHOWN),
                f"more than {part['counts'][-1]:,}" if first is None else str(first),
                f"{100 * means[part['counts'].index(by_rule)]:.0f} ({by_rule})",
                f"{int(reached(part, share).sum())} of {len(part['scores'])}",
            ]
        )
    heads = (
        "replacement", "items", "pairs", "re-embed %", "best 50", "100", "200", "400", "reaches 95 % at", "by the rule",
        "bridges that reach 95 %",
    )  # fmt: skip
    return table(heads, rows)


def rule(sizes: Sequence[dict[str, Any]]) -> str:
    """The rule for the number of candidates, and how often it held where it was not fixed."""
    share = fitted_share(sizes)
    parts = {
        name: [size for size in sizes if size["name"][0] == name] for name in ("scifact", "scifact-log", PHOTOGRAPHS)
    }
    fixing = [size for size in sizes if size["name"][0] in FITTED_SETS]
    held = {name: np.concatenate([reached(size, share) for size in found]) for name, found in parts.items() if found}
    all_fixing = np.concatenate([reached(size, share) for size in fixing])
    tested = ", ".join(
        f"{TITLES[name]} {int(held[name].sum())} of {len(held[name])}" for name in held if name not in FITTED_SETS
    )
    return (
        f"**The rule: {100 * share:g} % of the items**, at least {FEWEST}. It is the smallest of {len(SHARES)} shares "
        f"with which 95 % of the bridges reached 95 % of re-embedding on CACM, Cranfield and SciFact's log "
        f"({int(all_fixing.sum())} of {len(all_fixing)} bridges: sizes x replacements x five draws of the pairs). "
        f"Tested where it was not fixed, bridges that reached 95 %: {tested}. `compare` takes this number, and at most "
        "1,000; an index of more than 6,000 items was not measured. A smaller index of SciFact holds every right "
        "document of its queries, and others at random. SciFact's log asks other queries of the same documents."
    )


def costs_section(file: Path, replay: Path) -> list[str]:
    """Time of local models, and tokens for an API, with the embeddings per search late in the replay."""
    costs = json.loads(file.read_text(encoding="utf-8"))
    later = json.loads(replay.read_text(encoding="utf-8"))["parts"][-1]["embedded_per_search"]
    local = [
        [MODELS[name], *(f"{kinds[kind][part]:.0f}" for kind in ("documents", "titles") for part in PARTS_OF_TIME)]
        for name, kinds in costs["local"].items()
    ]
    rows = []
    for name, counted in costs["tokens"].items():
        at_first = costs["texts"] * counted["tokens"]
        millions = (at_first / 1000, later * counted["tokens"] / 1000, counted["documents"] * counted["tokens"] / 1e6)
        rows.append([TITLES[name], f"{counted['tokens']:,.0f}", f"{at_first:,.0f}", *(f"{n:.2f} P" for n in millions)])
    texts = costs["texts"]
    heads = (
        "documents of", "tokens each", f"tokens of {texts}", "1,000 searches at first", "1,000 searches later",
        "all documents once",
    )  # fmt: skip
    return [
        "## What a search costs",
        f"A search embeds at most {texts} items, and fewer as their vectors are kept. **With a local model**: time to "
        f"embed {texts} of SciFact's documents (cut at {costs['cut_at']} tokens) or of their titles, with "
        f"{costs['threads']} threads. Processor: median of {costs['repetitions']} repetitions, threads added. Clock: "
        f"the fastest of them; other work shared the machine (load {costs['load']:g} on {costs['cores']} cores).",
        table(("model", "documents: processor ms", "clock ms", "titles: processor ms", "clock ms"), local),
        "**With an API** that charges by the token: P is your provider's price of a million tokens. "
        f"Late in the replay below a search embedded {later:.1f} items.",
        table(heads, rows),
        f"Tokens are counted by {MODELS[costs['tokens_by']]}'s tokenizer, uncut; another one counts others.",
    ]


def speed_section(file: Path) -> list[str]:
    """What the search itself adds once every candidate's vector is kept, as ``bench/upgrade.py`` wrote it."""
    timing = json.loads(file.read_text(encoding="utf-8"))
    heads = ("items x numbers", "processor ms, p50", "clock ms, p50", "clock ms, p95", "disk GB", "memory MB")
    row = [
        f"{timing['items']:,} x {timing['dim']:,}",
        *(f"{timing[name]:.1f}" for name in ("p50_processor_ms", "p50_ms", "p95_ms", "disk_gb")),
        f"{1000 * timing['memory_added_by_searches_gb']:.0f}",
    ]
    return [
        f"**Once all vectors are kept** a search of 50 candidates adds this to the search of the old index "
        f"(`bench/upgrade.py`, {timing['searches']:,} searches, no deadline; load {timing['load']:.1f} on "
        f"{timing['cores']} cores, so read the processor's time):",
        table(heads, [row]),
    ]


def tuned_section(comparisons: Sequence[dict[str, Any]]) -> list[str]:
    """Photographs with fine-tuned networks: one row per seed."""
    if not comparisons:
        return []
    rows = []
    for found in comparisons:
        ways = {way["name"]: way for way in found["ways"]}
        tested = ways[found["tested"]]
        by_new = ways["two-stage@50, old query, new score"]
        scores = (
            "-" if way["score"] is None else percent(way["score"]["value"])
            for way in (ways["keep"], ways["bridge"], ways["blend"], by_new, tested, ways["re-embed"])
        )
        gains = (
            interval([way["gain"][part] for part in ("value", "low", "high")]) for way in (tested, ways["re-embed"])
        )
        rows.append([str(found["seed of training"]), *scores, *gains, found["verdict"]])
    heads = (
        "seed", "keep", "bridge", "blend", "two-stage@50, new score", "both scores (tested)", "re-embed",
        "gain of both scores", "gain of re-embed", "verdict",
    )  # fmt: skip
    first = comparisons[0]
    return [
        "### Photographs, fine-tuned",
        "EfficientNet-lite0 replaced by lite2, each fine-tuned for itself on the first 100 classes of CUB-200-2011 "
        "(`papers/upgrades/fine_tune.py`), searched on the photographs of the other 100 classes: every second one of a "
        f"class is in the index ({first['items']:,}), the others are queries ({first['judged']:,}). hit@1. A small "
        "training, on a processor: 128 pixels, the last block, the last convolution and the classifier, three epochs.",
        table(heads, rows),
    ]


def goals(cases: Sequence[dict[str, Any]], every: Sequence[dict[str, Any]]) -> str:
    lines = []
    chosen = [(case, f"old@50 {weight_of_others(every, case['name'][0]):g}") for case in cases]
    for title, pick in (("the new score alone", lambda way: "old@50 1"), ("both scores", lambda way: way)):
        above = sum(case["ways"][pick(way)]["score"] >= case["ways"]["re-embed"]["score"] for case, way in chosen)
        gained = sum(case["ways"][pick(way)]["gain"][1] > 0 for case, way in chosen)
        lost = sum(case["ways"][pick(way)]["gain"][2] < 0 for case, way in chosen)
        scores = [case["ways"][pick(way)]["score"] for case, way in chosen]
        best = [case["ways"]["re-embed"]["score"] for case, _ in chosen]
        lines.append(
            f"- Two-stage@50 with {title}: on average {percent(float(np.mean(scores)))}, re-embedding everything "
            f"{percent(float(np.mean(best)))}; at or above re-embedding in {above} of {len(cases)} replacements; "
            f"the whole interval of the gain over keeping above 0 in {gained}, below 0 in {lost}."
        )
    better = sum(case["ways"]["re-embed"]["gain"][1] > 0 for case in cases)
    lines.append(f"- Re-embedding everything: the whole interval above 0 in {better} of {len(cases)}.")
    worse = sum(case["ways"]["bridge"]["gain"][0] < 0 for case in cases)
    lines.append(f"- A bridge alone: below keeping in {worse} of {len(cases)}.")
    return "\n".join(lines)


def page(
    record: dict[str, Any], all_comparisons: Sequence[dict[str, Any]], costs: Sequence[str], extra: Sequence[str]
) -> str:
    comparisons = [found for found in all_comparisons if "seed of training" not in found]
    tuned = [found for found in all_comparisons if "seed of training" in found]
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
        "number of candidates; of CUB's photographs hit@1:",
        counts(record["sizes"]),
        rule(record["sizes"]),
        *costs,
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
    return "\n\n".join([*parts, *tuned_section(tuned), *extra]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    write_text(options.out, written(options.results))


def written(results: Path) -> str:
    """The page, from the records of a folder."""
    record = json.loads((results / "serving-both.json").read_text(encoding="utf-8"))
    comparisons = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(results.glob("compare-*.json"))]
    replay = results / "replay.json"
    costs = [*costs_section(results / "costs.json", replay), *speed_section(results / "cached-search.json")]
    return page(record, comparisons, costs, replay_section(replay))


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
