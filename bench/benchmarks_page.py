"""Write docs/benchmarks.md, the operators' numbers, from results/bench/*.json.

    python bench/benchmarks_page.py

Every number on the page is read from a file; the file is named above its table.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS, PAGE = ROOT / "results" / "bench", ROOT / "docs" / "benchmarks.md"

Read = Callable[[str], dict[str, Any]]

ENGINES = {
    "gallery-2cores": "embedded",
    "gallery_postgresql-2cores": "PostgreSQL with pgvector",
    "gallery_glyphs-2cores": "embedded, features of a trained network",
    "gallery_glyphs_postgresql-2cores": "PostgreSQL, features of a trained network",
}
"""Result of bench/gallery.py -> engine and features; the others are random vectors with classes."""


def render(results: Path = RESULTS) -> str:
    """The page as Markdown. Each section ends with the processors of its files."""
    processors: list[str] = []
    open_file = reader(results)

    def read(name: str) -> dict[str, Any]:
        found = open_file(name)
        processors.append(found["environment"]["processor"])
        return found

    parts = [INTRODUCTION]
    for section in (
        _search,
        _scale,
        _scale_of_real_features,
        _scale_on_postgresql,
        _service,
        _register,
        _check,
        _backfill,
        _start,
    ):
        processors.clear()
        parts.append(section(read))
        parts.append(f"Processor: {' and '.join(dict.fromkeys(processors))}.")
    return "\n\n".join([*parts, END]) + "\n"


def reader(results: Path) -> Read:
    """Reads a file of results by its name."""
    return lambda name: json.loads((results / f"{name}.json").read_text(encoding="utf-8"))


INTRODUCTION = """# Benchmarks

Speed, memory and disk of an index in operation. All are measured on two cores without a GPU. Times of different
processors cannot be compared. The page is written from [results/bench](../results/bench) by `bench/benchmarks_page.py`;
each file names its commit and versions. Some runs shared the cores with other work. Repeat a script on your machine
before you decide by its numbers.

Accuracy is on other pages: [bridges](results/bridges.md), [four updates](results/quarters.md),
[methods](methods/README.md)."""


def _search(read: Read) -> str:
    rows = []
    for name, engine in ENGINES.items():
        found = read(name)
        rows.append([engine, *_engine_cells(found["rows"]["holdfast gallery"])])
    first = read("gallery-2cores")
    for library in ("qdrant-edge", "faiss hnsw"):
        rows.append([f"for comparison: {library} alone", *_engine_cells(first["rows"][library])])
    heads = ["engine", "p50, ms", "p99, ms", "recall, %", "stored per s", "index, s", "GB"]
    return section(
        f"Search one index of {first['items']:,} vectors of {first['dim']} numbers",
        f"{first['queries']:,} searches by vector for ten hits, one after another (`bench/gallery.py`). Recall is "
        "against an exact search, at 10 hits. Index: seconds to build it after all items are stored. GB: peak memory "
        f"of the process, without a database server. Files: {_files(ENGINES)}.",
        heads,
        rows,
    )


def _engine_cells(row: dict[str, Any]) -> list[str]:
    return [
        f"{row['p50_ms']:.2f}", f"{row['p99_ms']:.2f}", f"{100 * row['recall']:.2f}",
        f"{row['items_per_s']:,.0f}", f"{row['index_s']:.0f}", f"{row['peak_gb']:.1f}",
    ]  # fmt: skip


def _service(read: Read) -> str:
    rows = []
    for name in ("service-2cores", "service_json-2cores"):
        found = read(name)
        rows.append(
            [
                found["form"], f"{found['seconds']:.0f}", found["environment"]["processor"],
                f"{found['searches_per_s']:.0f}", f"{found['p50_ms']:.0f}", f"{found['p99_ms']:.0f}",
                f"{found['errors']} of {found['n']:,}", f"{found['server_cpu_ms']:.1f}",
                f"{found['server_peak_gb']:.2f}",
            ]
        )  # fmt: skip
    heads = [
        "vectors sent as",
        "for, s",
        "processor",
        "searches per s",
        "p50, ms",
        "p99, ms",
        "errors",
        "processor ms",
        "GB",
    ]
    return section(
        "Search over HTTP",
        f"{found['clients']} clients at once, on the same index; server and clients share the two cores "
        "(`bench/service.py`). The rows are from different processors and cannot be compared. Processor ms: the "
        "server's time for one search. Files: "
        f"{_files(('service-2cores', 'service_json-2cores'))}.",
        heads,
        rows,
    )


def _scale(read: Read) -> str:
    found = read("scale-2cores")
    return _scalesection(
        f"Search {found['items']:,} vectors of {found['dim']} numbers in one and several versions",
        f"{found['queries']} searches for ten hits, one after another, with bridges to all older versions "
        "(`bench/scale.py`, `scale-2cores`). Recall is against an exact search by the same scores. Load: of the two "
        "cores, by all processes, in the minute before; with a load above 2 a quiet machine is faster.",
        found,
    )


def _scale_of_real_features(read: Read) -> str:
    found = read("scale_cub-2cores")
    return _scalesection(
        f"Search {found['items']:,} vectors made of real features",
        f"The same searches of features of photographs (`{found['features']}`), reduced to {found['dim']} numbers and "
        "repeated with noise: each photograph has many near-duplicates (`scale_cub-2cores`). The engine alone is "
        "faster here, so what the gallery adds is a larger share: the catalogue and, with several versions, the "
        "bridges and a search of each version.",
        found,
    )


def _scale_on_postgresql(read: Read) -> str:
    found = read("scale_postgresql-2cores")
    return _scalesection(
        f"Search {found['items']:,} vectors in several versions on PostgreSQL",
        "The same searches of made-up vectors (`bench/scale.py`, `scale_postgresql-2cores`). The load was above 2: a "
        "quiet machine is faster.",
        found,
    )


def _scalesection(title: str, text: str, found: Mapping[str, Any]) -> str:
    heads = ["engine", "versions", "p50, ms", "p99, ms", "recall@10, %", "load"]
    return section(title, text, heads, _scale_rows(found))


def _scale_rows(found: Mapping[str, Any]) -> list[list[str]]:
    rows = []
    for case, row in sorted(found["rows"].items()):
        engine, _, versions = case.rpartition("-") if "-" in case else (case, "", "1")
        for side, what in (
            ("gallery", ""),
            ("filtered", ", filter that keeps 1 %"),
            ("plain", ", the engine alone"),
            ("plain_4_bits", ", the engine alone by 4-bit copies"),
        ):
            if side in row:
                times = row[side]
                cells = (f"{times['p50_ms']:.1f}", f"{times['p99_ms']:.1f}", f"{100 * times['recall']:.1f}")
                rows.append([f"{engine}{what}", versions, *cells, f"{row['load']:.1f}"])
    return rows


def _register(read: Read) -> str:
    found = read("register-2cores")
    times, query = found["register"], found["bridged_query"]
    rows = []
    for what, key in (("search", "searches"), ("write of one item", "writes")):
        quiet, beside = times["quiet"][key], times["beside_register"][key]
        rows.append(
            [what, *(f"{one[number]:.1f}" for number in ("p50_ms", "p99_ms", "longest_ms") for one in (quiet, beside))]
        )
    heads = ["", "p50 before, ms", "p50 during", "p99 before", "p99 during", "longest before", "longest during"]
    text = (
        f"`register` fits a bridge on {found['pairs']:,} pairs in an index of {found['items']:,} items while one "
        f"thread searches and one writes; it took {times['beside_register']['seconds']:.1f} s (`bench/register.py`, "
        "`register-2cores`)."
    )
    after = (
        f"A bridged search (rotation, {found['query_dim']:,} x {found['query_dim']:,} numbers) has a p50 of "
        f"{query['bridged']['p50_ms']:.2f} ms, a plain one {query['plain']['p50_ms']:.2f} ms, in an index of "
        f"{found['query_items']:,} items."
    )
    if "real" in query:
        real = query["real"]
        after += (
            " These vectors are made up, with even noise in all directions. With features of real photographs"
            f" ({' and '.join(found['query_files'])}, {real['items']:,} items) a map of rank"
            f" {real['options'].get('rank', found['query_dim'])} is as good: p50 {real['bridged']['p50_ms']:.2f} ms"
            f" against {real['plain']['p50_ms']:.2f} ms."
        )
    return f"{section('Register a new model while the index is in use', text, heads, rows)}\n\n{after}"


def _check(read: Read) -> str:
    rows = []
    for name in ("check_small-2cores", "check-2cores"):
        found = read(name)
        own, reference = found["rows"]["holdfast check"], found["rows"]["faiss flat"]
        rows.append(
            [
                f"{found['gallery']:,} x {found['dim']}", f"2 x {found['queries']:,}", f"{own['median_s']:.0f}",
                f"{own['peak_gb']:.1f}", f"{reference['median_s']:.0f}", f"{reference['peak_gb']:.1f}",
            ]
        )  # fmt: skip
    heads = ["index", "queries", "check, s", "GB", "exact faiss search alone, s", "GB"]
    return section(
        "Check a model before release",
        "One run each; the check reads the index in blocks (`bench/check.py`). Files: "
        f"{_files(('check_small-2cores', 'check-2cores'))}.",
        heads,
        rows,
    )


def _backfill(read: Read) -> str:
    found = read("backfill_orders_cub-2cores")
    areas = {(one["measure"], one["order"]): one["area"] for one in found["orders"]}
    measures, orders = (list(dict.fromkeys(key[i] for key in areas)) for i in (0, 1))
    rows = [
        [
            order,
            *(f"{100 * areas[measure, order]:.1f}" for measure in measures),
        ]
        for order in orders
    ]
    text = (
        f"{found['items']:,} items move from EfficientNet-{found['old']} to {found['new']}, tenth by tenth, through a "
        f"bridge fitted on {found['pairs']:,} pairs; mean over the share that has moved, {found['seeds']} seeds "
        "(`bench/backfill.py`, `backfill_orders_cub-2cores`). `backfill` takes the order uncertain. For comparison: "
        "oldest, most-hit (by earlier queries), random, and residual, which first takes the items that their own "
        "bridged query misses by most."
    )
    return section("Backfill: which items first", text, ["order", *(f"{measure}, %" for measure in measures)], rows)


def _start(read: Read) -> str:
    found = read("cli_start-2cores")
    heads = ["command", "processor time, s", "of it not the import of torch, s"]
    rows = [
        [
            f"`{row['command']}`", f"{row['cpu_s']['median']:.2f}",
            "–" if row["cpu_beyond_torch_s"] is None else f"{row['cpu_beyond_torch_s']:.2f}",
        ]
        for row in found["rows"]
    ]  # fmt: skip
    text = (
        f"Median of {found['repeats']} on busy cores, so that processor time says more than the clock "
        "(`bench/cli_start.py`, `cli_start-2cores`)."
    )
    return section("Start of a command", text, heads, rows)


END = """## More

[Speed of training and evaluation](results/training-speed.md). All scripts: [bench/README.md](../bench/README.md)."""


def _files(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def section(title: str, text: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A heading, a paragraph and a table."""
    lines = [f"## {title}", "", text, "", f"| {' | '.join(heads)} |", f"|---|{'--:|' * (len(heads) - 1)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
