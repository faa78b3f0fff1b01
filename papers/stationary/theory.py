"""``python -m papers.stationary theory``: the paper's theorem and propositions, computed and drawn."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from holdfast.cli.options import JSON_OPTION, int_list, number_list
from holdfast.cli.show import print_json, print_table
from papers.stationary.theory_runs import proposition1, stationarity, toy

if TYPE_CHECKING:
    from papers.stationary.theorems.theorem1 import Inequality


theory = typer.Typer(
    help="The paper's theorem and propositions, computed.\n\nAlso whether their assumptions hold in a run.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
DIMS_OPTION = typer.Option("2,4,8,16,32,64,128,256,512,1024,2048", "--dims", help="Dimensions, separated by commas.")
OLD_OPTION = typer.Option(60.0, "--old-angle", help="Angle of the cap before the update, in degrees.")
NEW_OPTION = typer.Option(40.0, "--new-angle", help="Angle of the cap after it, in degrees.")
PLOT_OPTION = typer.Option(None, "--out", "-o", help="Also draw a figure: a .png, .svg or .pdf file.")


@theory.command("theorem1")
def theorem1(
    dims: str = DIMS_OPTION,
    old_angle: float = OLD_OPTION,
    new_angle: float = NEW_OPTION,
    samples: int = typer.Option(1_000_000, "--samples", help="Points drawn for each mean."),
    moved: float = typer.Option(0.0, "--moved", help="Degrees by which the new prototype has moved."),
    seed: int = typer.Option(0, "--seed", min=0, help="Of the random numbers."),
    out: Path | None = PLOT_OPTION,
    json: bool = JSON_OPTION,
) -> None:
    """Theorem 1: expected distances, sampled and exact.

    Points are uniform on caps around the vertices of a simplex. One row per dimension: do Eq. 1a and 1b hold, and by
    how many standard errors? With --json each mean has its standard error and the exact value.
    """
    import math

    from holdfast.core.errors import HoldfastError
    from papers.stationary.theorems.theorem1 import study_caps

    if out and moved:
        raise HoldfastError("--out draws Fig. 12, which has fixed prototypes: leave --moved out, or use: theory limits")
    old, new, away = (math.radians(angle) for angle in (old_angle, new_angle, moved))
    studies = [study_caps(d, old, new, samples=samples, seed=seed, moved=away) for d in int_list("--dims", dims)]
    if out:
        from papers.stationary.theory_figures import draw_theorem1

        draw_theorem1(out, studies, old=old, new=new)
    if json:
        print_json([study.to_json() for study in studies])
        return

    def cells(part: "Inequality") -> list[str]:
        verdict = "holds" if part.holds else "fails"
        return [f"{part.kt.mean:.5f}", f"{part.kk.mean:.5f}", f"{verdict} {part.standard_errors:+.1f}"]

    rows = [[str(study.d), *cells(study.same), *cells(study.different)] for study in studies]
    print_table(["d", "1a: D_kt", "D_kk", "by s.e.", "1b: D_kt", "D_kk", "by s.e."], rows, right=(0, 1, 2, 3, 4, 5, 6))
    largest = max(
        abs(e.mean - e.exact) / e.se if e.se else 0.0
        for study in studies
        for part in (study.same, study.different)
        for e in (part.kt, part.kk)
    )
    typer.echo(f"Largest distance from the closed form: {largest:.1f} standard errors.")


@theory.command("limits")
def limits(
    dims: str = typer.Option("2,9,99,1023", "--dims", help="Dimensions, separated by commas."),
    old_angle: float = OLD_OPTION,
    new_angles: str = typer.Option("20,40,55,60,65", "--new-angles", help="Degrees, separated by commas."),
    out: Path | None = PLOT_OPTION,
    json: bool = JSON_OPTION,
) -> None:
    """Limits of Theorem 1: how far a prototype may move.

    The paper assumes that caps shrink and prototypes do not move. A growing cap breaks both inequalities. With a
    smaller cap the prototype may move by some degrees: on average over the other classes, and towards one of them.
    """
    import math
    from itertools import product

    from papers.stationary.theorems.theorem1 import largest_moves

    angles = number_list("--new-angles", new_angles, float, "degrees")
    sizes = int_list("--dims", dims)
    rows = []
    for d, angle in product(sizes, angles):
        moves = largest_moves(d, math.radians(old_angle), math.radians(angle))
        degrees = {"average": math.degrees(moves.average), "towards": math.degrees(moves.towards)}
        rows.append({"d": d, "old_angle": old_angle, "new_angle": angle, **degrees})
    if out:
        from papers.stationary.theory_figures import draw_limits

        draw_limits(out, old_degrees=old_angle, dims=sizes)
    if json:
        print_json(rows)
        return
    print_table(
        ["d", "old cap", "new cap", "move, on average", "move, at one class"],
        [
            [str(row["d"]), f"{row['old_angle']:g}°", f"{row['new_angle']:g}°", _degrees(row["average"]),
             _degrees(row["towards"])]
            for row in rows
        ],
        right=(0, 1, 2, 3, 4),
    )  # fmt: skip


@theory.command("proposition2")
def proposition2(
    dims: str = typer.Option("3,10,100,1000,10000,100000,1000000", "--dims", help="Dimensions, separated by commas."),
    counts: str = typer.Option("100,10000,1000000", "--counts", help="Numbers of vectors, separated by commas."),
    out: Path | None = PLOT_OPTION,
    json: bool = JSON_OPTION,
) -> None:
    """Proposition 2: how closely random prototypes crowd.

    The expected smallest angle among n unit vectors and the density at it (Fig. 11), without the cosine of the
    appendix, which comes from a disc in place of the cap. The angle is the smallest over all pairs; "nearest" is that
    of one vector. It falls with n and grows with d.
    """
    import math

    from papers.stationary.theorems.propositions import expected_angle, log_density_at_expected_angle

    sizes, numbers = int_list("--dims", dims), int_list("--counts", counts)
    rows = [
        {
            "n": n,
            "d": d,
            "angle": expected_angle(n, d),
            "nearest": expected_angle(n, d, of="vector"),
            "log10_density": log_density_at_expected_angle(n, d) / math.log(10),
        }
        for n in numbers
        for d in sizes
    ]
    if out:
        from papers.stationary.theory_figures import draw_densities

        draw_densities(out, counts=numbers, smallest=min(sizes), largest=max(sizes))
    if json:
        print_json(rows)
        return
    print_table(
        ["n", "d", "angle, rad", "nearest, rad", "log10 density"],
        [
            [f"{r['n']:,}", f"{r['d']:,}", f"{r['angle']:.4f}", f"{r['nearest']:.4f}", f"{r['log10_density']:.2f}"]
            for r in rows
        ],
        right=(0, 1, 2, 3, 4),
    )


@theory.command("proposition3")
def proposition3(
    classes: int = typer.Option(100, "--classes", help="Pre-allocated prototypes."),
    seen: int = typer.Option(50, "--seen", help="Classes that have samples."),
    steps: int = typer.Option(4_000, "--steps", help="Gradient steps."),
    out: Path | None = PLOT_OPTION,
    json: bool = JSON_OPTION,
) -> None:
    """Proposition 3: trainable prototypes of future classes.

    They collapse; those of a fixed simplex do not move. Also theta-bar(n + m, d) beside theta-bar(n, d): the effect of
    new classes on the expected angle.
    """
    import math

    from papers.stationary.theorems.propositions import expected_angle, simulate_collapse

    found = simulate_collapse(classes=classes, seen=seen, steps=steps)
    angles = {"n": expected_angle(seen, classes - 1), "n_plus_m": expected_angle(classes, classes - 1)}
    if out:
        from papers.stationary.theory_figures import draw_collapse

        draw_collapse(out, found)
    if json:
        print_json({**vars(found), "expected_angle": angles})
        return
    shown = range(0, len(found.steps), max(1, len(found.steps) // 12))
    print_table(
        ["step", "to come", "with samples", "fixed simplex"],
        [
            [str(found.steps[i]), _degrees(math.degrees(found.unseen_smallest[i])),
             _degrees(math.degrees(found.seen_mean[i])), _degrees(math.degrees(found.fixed))]
            for i in (*shown, len(found.steps) - 1)
        ],
        right=(0, 1, 2, 3),
    )  # fmt: skip
    typer.echo(
        f"Expected angle of {seen} random prototypes {angles['n']:.4f} rad, of {classes} {angles['n_plus_m']:.4f}."
    )


@theory.command("figures")
def figures(
    out: Path = typer.Option(Path("figures"), "--out", "-o", help="The folder to write to."),
    only: str = typer.Option("", "--only", help="Names separated by commas, such as fig1,fig12; all by default."),
    json: bool = JSON_OPTION,
) -> None:
    """Draw the paper's figures 1, 2, 5, 11 and 12, which need no training."""
    from holdfast.core.errors import unknown_name
    from papers.stationary.theory_figures import PAPER_FIGURES

    names = [name.strip() for name in only.split(",") if name.strip()] or list(PAPER_FIGURES)
    for name in names:
        if name not in PAPER_FIGURES:
            raise unknown_name("figure", name, PAPER_FIGURES)
    for name in names:
        PAPER_FIGURES[name](out / f"{name}.png")
    if json:
        print_json({name: str(out / f"{name}.png") for name in names})
    else:
        typer.echo(f"Figures: {out.resolve()}")


theory.command("stationarity")(stationarity)
theory.command("proposition1")(proposition1)
theory.command("toy")(toy)


def _degrees(value: float) -> str:
    return "none" if value != value else f"{value:.3g}°"
