"""What two-stage search costs per query: the time of local models for fifty texts, and tokens for an API.

    python -m papers.upgrades.costs TEXT MODEL=FILE=TOKENIZER ... --out results/upgrades/costs.json

TEXT holds the folders of ``sets.py``. FILE is an ``.onnx`` network or a ``.safetensors`` table, as in ``embed.py``. The
texts are SciFact's documents, cut at 128 tokens, and their titles; each repetition draws fifty others. The first
model's tokenizer counts the tokens of every document, uncut.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import numpy as np

from papers.upgrades.embed import embed_texts, loaded_model

TEXTS, REPETITIONS, TOKENS, THREADS = 50, 5, 128, 2
SETS = ("scifact", "cacm", "cranfield")


def texts_of(file: Path) -> list[str]:
    return [json.loads(line)["text"] for line in file.read_text(encoding="utf-8").splitlines()]


def timed(file: Path, tokenizer_file: Path, texts: list[str]) -> dict[str, float]:
    """Milliseconds for fifty texts: the fastest repetition by the clock, and the median of the processor's time."""
    tokenizer, embed = loaded_model(file, tokenizer_file, TOKENS, THREADS)
    draw, clock, processor = np.random.default_rng(0), [], []
    embed_texts(texts[:TEXTS], tokenizer, 0, embed)
    for _ in range(REPETITIONS):
        chosen = [texts[place] for place in draw.choice(len(texts), TEXTS, replace=False)]
        begin, begin_processor = time.perf_counter(), time.process_time()
        embed_texts(chosen, tokenizer, 0, embed)
        clock.append(1000 * (time.perf_counter() - begin))
        processor.append(1000 * (time.process_time() - begin_processor))
    return {"fastest_ms": round(min(clock), 2), "processor_ms": round(float(np.median(processor)), 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("models", nargs="+", metavar="MODEL=FILE=TOKENIZER")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    models = {name: (Path(file), Path(other)) for name, file, other in (part.split("=") for part in options.models)}
    kinds = {kind: texts_of(options.text / "scifact" / f"{kind}.jsonl") for kind in ("documents", "titles")}
    counting, _ = loaded_model(*next(iter(models.values())), 1_000_000, THREADS)
    tokens = {}
    for name in SETS:
        documents = texts_of(options.text / name / "documents.jsonl")
        lengths = [len(encoding.ids) for encoding in counting.encode_batch(documents)]  # type: ignore[attr-defined]
        tokens[name] = {"documents": len(documents), "tokens": round(float(np.mean(lengths)), 1)}
    record = {
        "kind": "upgrade costs",
        "texts": TEXTS,
        "repetitions": REPETITIONS,
        "threads": THREADS,
        "cut_at": TOKENS,
        "local": {name: {kind: timed(*files, kinds[kind]) for kind in kinds} for name, files in models.items()},
        "tokens_by": next(iter(models)),
        "tokens": tokens,
        "load": round(os.getloadavg()[0], 1),
        "cores": os.cpu_count(),
    }
    options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
