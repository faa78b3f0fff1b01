"""The texts of ``holdfast demo`` and its two models: docstrings of Python's standard library, found by their summaries.

An item is a docstring without its first paragraph. That paragraph is a query, and the item it was taken from is the
right answer: a known item. Paragraphs that several docstrings begin with ask for nothing.

The old model is made on the spot: TF-IDF of words and its first 128 singular vectors (latent semantic analysis), from
the items alone. The new one is a table of 32,000 trained vectors, one for each token; a text is the mean of its tokens.
It is read from the data files of the package ``wordllama``; nothing of the package runs.
"""

import ast
import importlib.util
import json
import math
import re
import sysconfig
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import HoldfastError, how_to_install
from holdfast.core.storage import write_text
from holdfast.vectors.lengths import unit

Floats = NDArray[np.float32]
NO_DOCUMENTATION = {"test", "tests", "idle_test", "idlelib", "lib2to3", "site-packages", "dist-packages", "pydoc_data"}
"""Folders of the standard library that are left out: tests, tools, and what was installed beside it."""
FEWEST_WORDS = {"query": 4, "item": 15}
OLD_SIZE = 128
ROUNDS = 30
"""Subspace iterations for its singular vectors: cosines are within 0.01 of those of a whole decomposition."""
OLD_NAME = f"TF-IDF and SVD, {OLD_SIZE} numbers"
NEW_NAME = "WordLlama, 256 numbers"


@dataclass(frozen=True)
class Texts:
    """Items by their id, and queries by the id of their right item.

    items: "module.function" to text. queries: the same names to the paragraphs that ask for them; not all have one.
    """

    items: dict[str, str]
    queries: dict[str, str]

    def write(self, folder: Path) -> None:
        """items.jsonl and queries.jsonl (id, text), and qrels.tsv: which item is right for which query."""
        for name, texts in (("items", self.items), ("queries", self.queries)):
            lines = (json.dumps({"id": key, "text": text}, ensure_ascii=False) + "\n" for key, text in texts.items())
            write_text(folder / f"{name}.jsonl", "".join(lines))
        judgements = (f"{key}\t{key}\t1\n" for key in self.queries)
        write_text(folder / "qrels.tsv", "".join(["query-id\tcorpus-id\tscore\n", *judgements]))


def standard_library() -> Texts:
    """The docstrings of this Python's standard library, read from its source files. Nothing is imported."""
    items: dict[str, str] = {}
    queries: dict[str, str] = {}
    for name, docstring in _docstrings(Path(sysconfig.get_path("stdlib"))):
        first, *rest = (" ".join(part.split()) for part in re.split(r"\n\s*\n", docstring, maxsplit=1))
        if not rest or name in items:
            continue
        if len(first.split()) >= FEWEST_WORDS["query"] and len(rest[0].split()) >= FEWEST_WORDS["item"]:
            items[name], queries[name] = rest[0], first
    if len(items) < 1000:
        raise HoldfastError("this Python comes without the source files of its standard library, which the demo reads")
    same_text = Counter(items.values())
    items = {name: text for name, text in items.items() if same_text[text] == 1}
    same_query = Counter(queries.values())
    return Texts(items, {name: queries[name] for name in items if same_query[queries[name]] == 1})


def _docstrings(root: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        if NO_DOCUMENTATION & set(parts):
            continue
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError):  # a template, or another encoding than it says
            continue
        yield from _documented(tree, ".".join(parts))


def _documented(node: ast.AST, name: str) -> Iterator[tuple[str, str]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            path = f"{name}.{child.name}"
            if docstring := ast.get_docstring(child):
                yield path, docstring
            yield from _documented(child, path)


class OldModel:
    """TF-IDF of words, projected onto the first singular vectors of the texts it is made from."""

    def __init__(self, texts: Sequence[str]) -> None:
        counts = Counter(word for text in texts for word in set(_words(text)))
        self.columns = {word: column for column, word in enumerate(sorted(w for w, n in counts.items() if n > 1))}
        self.rarity = np.array([math.log(len(texts) / counts[word]) for word in self.columns], dtype=np.float32)
        rows = self._weights(texts)
        similar = rows @ rows.T  # smaller than the table of words, with the same singular vectors
        basis = np.random.default_rng(0).standard_normal((len(rows), min(OLD_SIZE + 32, len(rows)))).astype(np.float32)
        for _ in range(ROUNDS):
            basis, _ = np.linalg.qr(similar @ basis)
        values, vectors = np.linalg.eigh(basis.T @ similar @ basis)
        largest = basis @ vectors[:, -OLD_SIZE:] / np.sqrt(values[-OLD_SIZE:])
        self.directions = rows.T @ largest

    def embed(self, texts: Sequence[str]) -> Floats:
        return unit(self._weights(texts) @ self.directions)

    def _weights(self, texts: Sequence[str]) -> Floats:
        rows = np.zeros((len(texts), len(self.columns)), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            for word, count in Counter(_words(text)).items():
                if (column := self.columns.get(word)) is not None:
                    row[column] = (1 + math.log(count)) * self.rarity[column]
        return unit(rows)


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z]{2,}", text.lower())


class NewModel:
    """The mean of trained token vectors."""

    def __init__(self) -> None:
        package = importlib.util.find_spec("wordllama")
        if package is None or package.origin is None or importlib.util.find_spec("tokenizers") is None:
            raise HoldfastError(f"the demo's new model is in another package: {how_to_install('demo')}")
        from safetensors.numpy import load_file
        from tokenizers import Tokenizer

        folder = Path(package.origin).parent
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizers" / "l2_supercat_tokenizer_config.json"))
        (self.table,) = load_file(folder / "weights" / "l2_supercat_256.safetensors").values()

    def embed(self, texts: Sequence[str]) -> Floats:
        encodings = self.tokenizer.encode_batch(list(texts), add_special_tokens=False)
        means = [self.table[encoding.ids].mean(axis=0, dtype=np.float32) for encoding in encodings]
        return unit(np.stack(means))
