"""The four replacements that ``holdfast compare`` is shown on, each with the weight that the other collections chose.

    python -m papers.upgrades.compare_cases VECTORS results/upgrades/serving-both.json results/upgrades

Writes ``compare-SET-OLD-NEW.json``: the record of ``compare``, with the seconds that it took. With ``--photographs``, a
folder with ``lite0-test.npz`` and ``lite2-test.npz`` (features, labels) of CUB-200-2011's test images: every second
image of a class is in the index, the others are queries, right are images of the query's class, and the score is hit@1.
``--fine-tuned`` does the same with each seed of ``fine_tune.py``.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast import compare
from holdfast.core.storage import write_json
from papers.upgrades.collections import PHOTOGRAPHS, photographs
from papers.upgrades.weights import default_weight, weight_of_others

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
    parser.add_argument("--cases", nargs="*", choices=["-".join(case) for case in CASES], help="default: all")
    parser.add_argument("--photographs", type=Path)
    parser.add_argument("--fine-tuned", type=Path, help="the folder that fine_tune.py wrote")
    options = parser.parse_args()
    cases = json.loads(options.study.read_text(encoding="utf-8"))["cases"]
    for name, old, new in CASES:
        if options.cases is not None and "-".join((name, old, new)) not in options.cases:
            continue
        folder = options.vectors / name
        files = [folder / f"{model}-{part}.npz" for part in ("docs", "queries") for model in (old, new)]
        if not all(file.exists() for file in files):
            sys.stderr.write(f"{name}, {old} to {new}: files are missing\n")
            continue
        weight = weight_of_others(cases, name)
        relevance = json.loads((folder / "qrels.json").read_text(encoding="utf-8"))
        compared(options.out, (name, old, new), files, relevance=relevance, weight=weight)
    if options.photographs is not None:
        case = (PHOTOGRAPHS, "lite0", "lite2")
        halves = photographs(options.photographs, case[1:])
        compared(options.out, case, halves, score="hit@1", weight=default_weight(cases))
    if options.fine_tuned is not None:
        for folder in sorted(options.fine_tuned.glob("[0-9]*")):
            case = (PHOTOGRAPHS, "lite0", "lite2")
            halves = photographs(folder, case[1:])
            compared(options.out, case, halves, int(folder.name), score="hit@1", weight=default_weight(cases))


def compared(
    out: Path, case: tuple[str, str, str], vectors: Sequence[Any], training: int | None = None, **options: Any
) -> None:
    """Run ``compare`` and write its record. training: the seed of the fine-tuned models."""
    begin, begin_cpu = time.perf_counter(), time.process_time()
    result = compare(*vectors, **options)
    seconds, cpu_seconds = time.perf_counter() - begin, time.process_time() - begin_cpu
    record = {**result.as_json(), "case": list(case)}
    record |= {"seconds": round(seconds, 1), "cpu_seconds": round(cpu_seconds, 1)}
    record["sources"] = {kind: Path(file).name for kind, file in record["sources"].items()}
    if training is not None:
        record["seed of training"] = training
    name = "-".join(case) + ("" if training is None else f"-tuned-{training}")
    write_json(out / f"compare-{name}.json", record)
    sys.stderr.write(f"{', '.join(case)}: {seconds:.0f} s, weight {options['weight']}: {result}\n")


if __name__ == "__main__":
    main()
