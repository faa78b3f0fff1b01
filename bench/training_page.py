"""Write docs/results/training-speed.md, the times of training and evaluation, from results/bench/*.json.

    python bench/training_page.py

Every number in a table is read from a file; the file is named above its table. The text on kernels is in
``docs/results/kernels.md``.
"""

from pathlib import Path
from typing import Any

from benchmarks_page import RESULTS, ROOT, Read, reader, section

PAGE = ROOT / "docs" / "results" / "training-speed.md"

STEPS = {
    "train_step-h200": "H200",
    "train_step_fused-h200": "H200, sums that cannot overflow",
    "compiled-h200": "H200, an earlier commit",
    "train_step_resnet18-h200": "H200, an earlier commit",
    "train_step-2cores": "2 cores",
}
"""Result of bench/train_step.py -> where it was made."""

LARGER_STEPS = {
    "train_step_64px_benchmark-h200": ("ResNet-18", "torch; cuDNN tries its algorithms"),
    "train_step_64px_graph-h200": ("ResNet-18", "torch"),
    "train_step_64px_fused-h200": ("ResNet-18", "kernels, except for stem and max-pool"),
    "train_step_64px_stem-h200": ("ResNet-18", "all kernels"),
    "train_step_224px-h200": ("ResNet-50", "torch"),
}
"""Result of bench/train_step.py -> network, and what its steps are computed by."""

INTRODUCTION = """# Speed of training and evaluation

Written from [results/bench](../../results/bench) by `bench/training_page.py`. Each file names its commit, hardware and
versions. How the kernels of executor `fused` work, and what was tried, is in [kernels](kernels.md). Speed of search is
in [benchmarks](../benchmarks.md)."""


def render(results: Path = RESULTS) -> str:
    """The page as Markdown."""
    read = reader(results)
    sections = (
        _step,
        _larger_step,
        _sweep,
        _executors,
        _large_images,
        _dinov3,
        _matrix,
        _extraction,
        _feature_length,
        _simplex,
    )
    return "\n\n".join([INTRODUCTION, *(one(read) for one in sections)]) + "\n"


def _executor(found: dict[str, Any], name: str) -> str:
    """Today's name: in these files, ``auto`` for a ResNet-32 on a GPU is what is called ``fused`` today."""
    first = name.partition(",")[0]
    on_gpu = found["environment"].get("gpu") is not None
    return "fused" if first == "auto" and on_gpu and found.get("backbone", "resnet32") == "resnet32" else first


def _step(read: Read) -> str:
    rows = []
    for name, place in STEPS.items():
        found = read(name)
        for row in found["rows"]:
            memory = "–" if row["peak_gb"] is None else f"{row['peak_gb']:.1f}"
            rows.append(
                [
                    found.get("backbone", "resnet32"), place, found["precision"], _executor(found, row["executor"]),
                    str(row["runs"]), f"{row['median_ms']:.2f}", f"{row['min_ms']:.2f} to {row['max_ms']:.2f}",
                    f"{row['warm_up_s']:.0f}", memory,
                ]
            )  # fmt: skip
    heads = ["network", "device", "numbers", "executor", "runs at once", "ms", "least to most", "warm-up, s", "GB"]
    return section(
        "One training step",
        "d-Simplex-HOC with its old model, batch 128, images of 32 pixels, second of seven tasks "
        "(`bench/train_step.py`). ms: median over repeats, per step and run. Warm-up: until the executor is ready. In "
        "files of an earlier commit the old model is computed after the new one, today beside it. Files: "
        f" {', '.join(f'`{name}`' for name in STEPS)}.",
        heads,
        rows,
    )


def _larger_step(read: Read) -> str:
    rows = []
    for name, (network, computed_by) in LARGER_STEPS.items():
        found = read(name)
        for row in found["rows"]:
            rows.append(
                [
                    network, f"{found['image_size']}", str(found["batch_size"]), row["executor"].partition(",")[0],
                    computed_by, str(row["runs"]), f"{row['median_ms']:.2f}", f"{row['tflops']:.0f}",
                    f"{100 * row['share_of_matrix_product']:.0f}", f"{row['peak_gb']:.1f}",
                ]
            )  # fmt: skip
    product = read("train_step_64px_graph-h200")["matrix_product_tflops"]
    return section(
        "One training step of larger images",
        "d-Simplex-HOC with its old model, bf16, one H200, the steps of Table 3 (64 pixels) and Table 4 (224 pixels) "
        "(`bench/train_step.py`). ms: median over repeats, per step and run. TFLOP/s: of the convolutions and matrix "
        f"products. share: of the speed of a large matrix product in bf16, {product:.0f} TFLOP/s. Files: "
        f"{', '.join(f'`{name}`' for name in LARGER_STEPS)}.",
        ["network", "pixels", "batch", "executor", "computed by", "runs at once", "ms", "TFLOP/s", "share, %", "GB"],
        rows,
    )


def _sweep(read: Read) -> str:
    found = read("sweep-h200")
    rows = [
        [
            _executor(found, row["executor"]), str(row["runs"]), f"{row['median_ms']:.2f}",
            f"{row['times_eager']:.1f}", f"{row['peak_gb']:.2f}",
        ]
        for row in found["rows"]
    ]  # fmt: skip
    return section(
        "Several runs on one GPU",
        "Whole runs side by side in one process, ResNet-32, batch 128, bf16, one H200 (`bench/sweep.py`, `sweep-h200`, "
        "made before some of the kernels). ms: per step and run.",
        ["executor", "runs at once", "ms", "times the speed of one eager run", "GB reserved"],
        rows,
    )


def _executors(read: Read) -> str:
    found = read("executor_accuracy-h200")
    rows = [
        [
            one["executor"], f"{100 * one['AA']:.2f}", f"{100 * one['AA_sd']:.2f}",
            f"{100 * one['AA_minus_first']:+.2f}", f"{100 * one['standard_error']:.2f}",
        ]
        for one in found["over_seeds"]
    ]  # fmt: skip
    seeds = len(found["seeds"].split(","))
    return section(
        "The same accuracy by every executor",
        "Executor `graph` gives the bits of the eager step. `fused` rounds to bf16 in other places. Whole runs of "
        f"d-Simplex-HOC, {found['tasks']} tasks, {found['epochs']} epochs, {seeds} seeds, one H200 "
        "(`bench/executor_accuracy.py`, "
        "`executor_accuracy-h200`). The aim is a mean AA within 1.5 points.",
        ["executor", "AA %", "standard deviation over seeds", "less graph, points", "standard error"],
        rows,
    )


def _large_images(read: Read) -> str:
    found = read("large_images-h200")
    places = {"device": "in the GPU's memory", "stream": "streamed from the host"}
    rows = [
        [
            row["network"], places[row["placement"]], f"{row['ms_per_step']:.1f}", f"{row['images_per_s']:,.0f}",
            f"{100 * row['gpu_busy']:.0f}", f"{100 * row['first_pass_gpu_busy']:.0f}",
            f"{100 * row['seventy_passes_gpu_busy']:.0f}",
        ]
        for row in found["rows"]
    ]  # fmt: skip
    return section(
        f"Images of {found['size']} pixels",
        f"d-Simplex-HOC with its old model, batch {found['batch_size']}, {found['precision']}, one H200, from a folder "
        "of JPEG files decoded by 16 cores (`bench/large_images.py`, `large_images-h200`). GPU busy: share of time.",
        ["network", "images", "ms per step", "images per s", "GPU busy, %", "first pass, decoding, %", "70 passes, %"],
        rows,
    )


def _dinov3(read: Read) -> str:
    found = read("large_step-h200")
    rows = [
        [row["method"], row["step"], f"{row['median_ms']:.1f}", f"{row['images_per_s']:,.0f}", f"{row['peak_gb']:.1f}"]
        for row in found["rows"]
    ]
    hours = ", ".join(f"{one['hours']:.1f} for {one['method']} on {one['what']}" for one in found["hours"])
    part = section(
        f"DINOv3 ViT-B/16 with {found['slots']:,} slots",
        f"The network of Figure 8, batch {found['batch']}, {found['precision']}, one H200 (`bench/large_step.py`, "
        "`large_step-h200`).",
        ["method", "step", "ms", "images per s", "GB"],
        rows,
    )
    return f"{part}\n\nHours of the whole experiment at this speed: {hours}."


def _matrix(read: Read) -> str:
    rows = []
    for name, place in (("evaluation-h200", "H200"), ("evaluation-2cores", "2 cores")):
        found = read(name)
        rows += [[place, what, f"{row['all_cells_s']:,.1f}"] for what, row in found["rows"].items()]
    return section(
        "A compatibility matrix",
        f"All cells of {found['models']} models, {found['queries']:,} queries and {found['gallery']:,} gallery items "
        f"of {found['dim']} numbers, scaled from some of the cells (`bench/evaluation.py`, `evaluation-h200`, "
        "`evaluation-2cores`).",
        ["device", "protocol", "all cells, s"],
        rows,
    )


def _extraction(read: Read) -> str:
    found = read("reference_loop-h200")
    times = found["extraction_s_31_models_60000_images"]
    return section(
        "Features once per model",
        "Features of 60,000 images for the matrix of 31 models, by a DataLoader with 12 workers, scaled from 2,000 "
        "images; the start of the workers is included, so that both times are too high (`bench/reference_loop.py`, "
        "`reference_loop-h200`).",
        ["features are computed", "s"],
        [
            [what.replace("every pair anew", "again for every pair"), f"{seconds:,.0f}"]
            for what, seconds in times.items()
        ],
    )


def _feature_length(read: Read) -> str:
    files = ("feature_length-h200", "feature_length_held-h200", "feature_length-2cores")
    rows = []
    for name in files:
        lengths: dict[str, list[float]] = {}
        for row in read(name)["rows"]:
            lengths.setdefault(row["run"], []).append(row["length"])
        rows += [
            [f"`{run}`", name, f"{found[0]:.1f}", f"{found[1]:.1f}", f"{found[-1]:.1f}", str(len(found))]
            for run, found in lengths.items()
        ]
    return section(
        "Length of raw features",
        "Mean length before scaling to unit length, of the models of single runs (`bench/feature_length.py`). It "
        "decides how much cross-entropy counts beside the contrast, which sees directions only. A name with "
        "`length-25` or `length-28`: cross-entropy sees every feature at that length.",
        ["run", "file", "first model", "second", "last", "models"],
        rows,
    )


def _simplex(read: Read) -> str:
    found = read("simplex-2cores")
    rows = [
        [
            what, f"{found[key]['implicit']['median_ms']:,.0f}", f"{found[key]['dense']['median_ms']:,.0f}",
            f"{found[key]['speed_up']:.0f}",
        ]
        for what, key in (("logits", "logits"), ("whole cross-entropy", "cross_entropy"))
    ]  # fmt: skip
    part = section(
        "The d-Simplex without its matrix",
        f"Forward and backward pass, K = {found['classes']:,}, batch {found['batch']}, 2 cores (`bench/simplex.py`, "
        "`simplex-2cores`).",
        ["", "without the matrix, ms", "with it, ms", "times faster"],
        rows,
    )
    memory = found["peak_mb"]
    return f"{part}\n\nPeak memory: {memory['implicit']:,.0f} MB without the matrix, {memory['dense']:,.0f} MB with it."


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
