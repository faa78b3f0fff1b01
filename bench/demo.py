"""The scores of ``holdfast demo`` at several training seeds, without its gallery.

    python bench/demo.py [FOLDER] [--seeds 0,1,2,3,4] [--json FILE]

FOLDER: where the demos go, one folder per seed (default: runs/demo-seeds). What is finished there is used again, so a
demo of an earlier commit would be shown as one of this commit: use a new folder for new figures.
"""

import argparse
from pathlib import Path

from timing import write_figures

from holdfast.cli.demo_story import DemoSettings, run_demo
from holdfast.core.environment import describe
from holdfast.train.engine import Cancellation


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", default="runs/demo-seeds")
    parser.add_argument("--seeds", default="0,1,2,3,4")
    parser.add_argument("--json")
    options = parser.parse_args()
    rows = []
    for seed in map(int, options.seeds.split(",")):
        out = Path(options.folder) / f"s{seed}"
        record = run_demo(out, DemoSettings(seed=seed), lambda name, event: None, Cancellation())
        rows.append({"seed": seed, **{key: record[key] for key in ("pairs", "bridges", "scores", "checks")}})
        scores = (f"{name} {100 * found['value']:.1f} %" for name, found in record["scores"].items())
        print(f"seed {seed}: {', '.join(scores)}", flush=True)
    if options.json:
        write_figures(options.json, "demo", describe("cpu"), options, rows=rows)


if __name__ == "__main__":
    main()
