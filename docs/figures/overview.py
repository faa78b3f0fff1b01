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
        box(8, 20, 150, "items", "embedded once"),
        box(226, 20, 150, "model v1"),
        box(540, 20, 212, "index of v1", "stored vectors do not change"),
        box(8, 136, 150, "queries", "today"),
        box(226, 136, 150, "model v2", "the new model", "new"),
        box(424, 136, 166, "bridge", "a small map, no labels", "new"),
        arrow((158, 49), (220, 49)),
        arrow((376, 49), (534, 49)),
        arrow((158, 165), (220, 165)),
        arrow((376, 165), (418, 165)),
        arrow((590, 165), (646, 165), (646, 84)),
    ]
    marker = (
        '<marker id="end" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path class="end" d="M0,0 L8,4 L0,8 z"/></marker>'
    )
    title = "Queries of the new model pass a bridge and search the vectors that the old model stored."
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
