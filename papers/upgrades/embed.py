"""Embed the texts of a collection with a model on disk, without torch: unit float32 vectors with ids, as ``.npz``.

    python papers/upgrades/embed.py SET/scifact minilm --onnx model.onnx --tokenizer tokenizer.json
    python papers/upgrades/embed.py SET/scifact wordllama --table l2_supercat_256.safetensors --tokenizer t.json

For each of ``documents``, ``queries``, ``log`` and ``titles`` that the folder has as ``.jsonl``, ``MODEL-docs.npz``,
``MODEL-queries.npz``, ``MODEL-log.npz`` and ``MODEL-titles.npz`` are written, with the arrays ``features`` and
``ids``. A file that is there already is kept. Texts are cut at ``--tokens`` (128). ``--onnx`` is a network that puts
out one vector per token, which are averaged over the text, or one vector per text; ``--table`` is a table of word
vectors, averaged. Needs numpy, tokenizers, onnxruntime and (for tables) safetensors.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

PARTS = {"documents": "docs", "queries": "queries", "log": "log", "titles": "titles"}
BATCH = 32


def average(tokens: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """The mean of each text's token vectors (texts x tokens x numbers), as texts x numbers."""
    weight = mask[:, :, None].astype(np.float32)
    return (tokens * weight).sum(1) / np.maximum(weight.sum(1), 1)


def onnx_model(path: Path, threads: int) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads
    settings.add_session_config_entry("session.intra_op.allow_spinning", "0")  # other work may need the cores
    session = onnxruntime.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])
    wanted = {entry.name for entry in session.get_inputs()}
    outputs = session.get_outputs()
    name = next((output.name for output in outputs if len(output.shape) == 3), outputs[0].name)

    def embed(ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        output = session.run([name], {key: value for key, value in given.items() if key in wanted})[0]
        return average(output, mask) if output.ndim == 3 else output

    return embed


def table_model(path: Path) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    from safetensors.numpy import load_file

    table = next(iter(load_file(path).values())).astype(np.float32)
    return lambda ids, mask: average(table[np.clip(ids, 0, len(table) - 1)], mask)


def embed_texts(
    texts: list[str], tokenizer: object, padding: int, embed: Callable[[np.ndarray, np.ndarray], np.ndarray]
) -> np.ndarray:
    """Unit float32 vectors, one row per text; texts of similar length are embedded together."""
    encodings = tokenizer.encode_batch(texts)  # type: ignore[attr-defined]
    order = np.argsort([len(encoding.ids) for encoding in encodings], kind="stable")
    rows: np.ndarray | None = None
    for start in range(0, len(order), BATCH):
        places = order[start : start + BATCH]
        longest = max(1, max(len(encodings[place].ids) for place in places))
        ids = np.zeros((len(places), longest), np.int64)
        mask = np.zeros_like(ids)
        for row, place in enumerate(places):
            length = len(encodings[place].ids)
            ids[row, :length] = encodings[place].ids
            mask[row, :length] = 1
        ids[mask == 0] = padding
        vectors = embed(ids, mask)
        if rows is None:
            rows = np.empty((len(texts), vectors.shape[1]), np.float32)
        rows[places] = vectors
    assert rows is not None, "no texts"
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)


def loaded_model(
    file: Path, tokenizer_file: Path, tokens: int, threads: int
) -> tuple[object, Callable[[np.ndarray, np.ndarray], np.ndarray]]:
    """The tokenizer, which cuts texts at ``tokens``, and the model of a file: an ``.onnx`` network or a table."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(tokenizer_file))
    tokenizer.no_padding()
    tokenizer.enable_truncation(tokens)
    if file.suffix == ".onnx":
        return tokenizer, onnx_model(file, threads)
    plain = {"encode_batch": lambda self, texts: tokenizer.encode_batch(texts, add_special_tokens=False)}
    return type("Plain", (), plain)(), table_model(file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a folder that sets.py wrote")
    parser.add_argument("model", help="the model's name in the names of the files")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--onnx", type=Path)
    source.add_argument("--table", type=Path, help="safetensors with one vector per token")
    parser.add_argument("--tokenizer", type=Path, required=True, help="tokenizer.json")
    parser.add_argument("--tokens", type=int, default=128, help="tokens of a text that are read")
    parser.add_argument("--padding", type=int, default=0, help="the number of the padding token (1 for MPNet)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--parts", nargs="+", choices=tuple(PARTS), default=tuple(PARTS))
    options = parser.parse_args()
    file = options.onnx or options.table
    tokenizer, embed = loaded_model(file, options.tokenizer, options.tokens, options.threads)
    for part in options.parts:
        source_file, target = options.folder / f"{part}.jsonl", options.folder / f"{options.model}-{PARTS[part]}.npz"
        if not source_file.exists() or target.exists():
            continue
        begin = time.perf_counter()
        lines = [json.loads(line) for line in source_file.read_text(encoding="utf-8").splitlines()]
        features = embed_texts([line["text"] for line in lines], tokenizer, options.padding, embed)
        np.savez(target, features=features, ids=np.array([line["id"] for line in lines]))
        rows, numbers = features.shape
        sys.stderr.write(f"{target}: {rows:,} x {numbers}, {time.perf_counter() - begin:.0f} s\n")


if __name__ == "__main__":
    main()
