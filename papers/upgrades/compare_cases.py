"""The four replacements that ``holdfast compare`` is shown on, each with the weight that the other collections chose.

    python -m papers.upgrades.compare_cases VECTORS results/upgrades/serving-both.json results/upgrades

Writes ``compare-SET-OLD-NEW.json``: the record of ``compare``, with the seconds that it took.
"""

import argparse
import json
import sys
import time
from pathlib import Path

from holdfast import compare
from holdfast.core.storage import write_json
from papers.upgrades.weights import weight_of_others

CASES = (
    ("scifact", "wordllama", "mpnet"),
    ("scifact", "minilm", "mpnet"),
    ("cacm", "wordllama", "minilm"),
    ("cranfield", "minilm", "mpnet"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("vectors", type=Path)
    parser.add_argument("study", type=Path, help="the record of study.py, which the weights come from")
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    cases = json.loads(options.study.read_text(encoding="utf-8"))["cases"]
    for name, old, new in CASES:
        folder = options.vectors / name
        files = [folder / f"{model}-{part}.npz" for part in ("docs", "queries") for model in (old, new)]
        if not all(file.exists() for file in files):
            sys.stderr.write(f"{name}, {old} to {new}: files are missing\n")
            continue
        weight = weight_of_others(cases, name)
        relevance = json.loads((folder / "qrels.json").read_text(encoding="utf-8"))
        begin = time.perf_counter()
        result = compare(*files, relevance=relevance, weight=weight)
        seconds = time.perf_counter() - begin
        record = {**result.as_json(), "case": [name, old, new], "seconds": round(seconds, 1)}
        record["sources"] = {kind: Path(file).name for kind, file in record["sources"].items()}
        write_json(options.out / f"compare-{name}-{old}-{new}.json", record)
        sys.stderr.write(f"{name}, {old} to {new}: {seconds:.0f} s, weight {weight}: {result}\n")


if __name__ == "__main__":
    main()
