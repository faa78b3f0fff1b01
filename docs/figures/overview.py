"""Draw overview.svg, the diagram of the README: ``python docs/figures/overview.py``."""

from pathlib import Path

WIDTH, HEIGHT = 760, 214
STYLE = """
  text { font: 15px system-ui, sans-serif; fill: #1f2328; text-anchor: middle; }
  .small { font-size: 12.5px; fill: #59636e; }
  .box { fill: #f6f8fa; stroke: #8c959f; }
  .new { fill: #ddf4ff; stroke: #0969da; }
  .line { stroke: #59636e; stroke-width: 1.6; fill: none; marker-end: url(#end); }
  .end { fill: #59636e; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; } .small { fill: #b7bdc8; }
    .box { fill: #161b22; stroke: #656c76; } .new { fill: #0c2d6b; stroke: #4493f8; }
    .line { stroke: #9198a1; } .end { fill: #9198a1; }
  }
"""


def box(x: int, y: int, width: int, text: str, below: str = "", kind: str = "box") -> str:
    middle = x + width // 2
    lines = [f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="58" rx="8"/>']
    lines.append(f'<text x="{middle}" y="{y + (27 if below else 34)}">{text}</text>')
    if below:
        lines.append(f'<text class="small" x="{middle}" y="{y + 46}">{below}</text>')
    return "\n".join(lines)


def arrow(*points: tuple[int, int]) -> str:
    return f'<polyline class="line" points="{" ".join(f"{x},{y}" for x, y in points)}"/>'


def drawing() -> str:
    parts = [
        box(8, 20, 110, "query"),
        box(168, 20, 140, "old model"),
        box(358, 20, 172, "your index", "old vectors, as they are"),
        box(580, 20, 172, "best 50", "of the old model"),
        box(534, 136, 218, "new model", "scores them, keeps their vectors", "new"),
        box(358, 136, 126, "hits"),
        arrow((118, 49), (162, 49)),
        arrow((308, 49), (352, 49)),
        arrow((530, 49), (574, 49)),
        arrow((666, 78), (666, 130)),
        arrow((534, 165), (490, 165)),
    ]
    marker = (
        '<marker id="end" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path class="end" d="M0,0 L8,4 L0,8 z"/></marker>'
    )
    title = (
        "The old model finds fifty candidates in the index as it is; the new one scores them and keeps their vectors."
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}">',
            f"<title>{title}</title>",
            f"<style>{STYLE}</style>",
            f"<defs>{marker}</defs>",
            *parts,
            "</svg>",
            "",
        ]
    )


if __name__ == "__main__":
    Path(__file__).with_suffix(".svg").write_text(drawing(), encoding="utf-8")
