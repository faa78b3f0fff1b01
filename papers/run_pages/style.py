"""The style sheet of the pages: light and dark, screen, phone and print. It loads nothing from outside the page."""

# Chart colours are those of Okabe and Ito, which people with the common kinds of colour blindness can distinguish. The
# dark set has the same hues, lighter where the contrast would be too low.
_COLOURS = """
:root { color-scheme: light dark;
  --paper:#fdfdfc; --card:#ffffff; --ink:#1d2327; --quiet:#5d666d; --rule:#e2e5e7; --soft:#f4f5f5;
  --heat:0,114,178; --fail:#fbdcd5; --fail-ink:#7c2413; --fail-mark:#c8452c; --accent:#0a5f93;
  --c0:#0072b2; --c1:#d55e00; --c2:#009e73; --c3:#b4578f; --c4:#a87400; --c5:#3a9bd1; --c6:#1d2327; --c7:#8a6a4f; }
@media (prefers-color-scheme: dark) { :root {
  --paper:#14181b; --card:#1a1f23; --ink:#e6e9eb; --quiet:#9aa5ad; --rule:#2d353b; --soft:#20262b;
  --heat:72,160,220; --fail:#57281f; --fail-ink:#ffd8cf; --fail-mark:#ef7a62; --accent:#7cc4f2;
  --c0:#56b4e9; --c1:#f0883e; --c2:#2fc49a; --c3:#e08abf; --c4:#e6b94a; --c5:#9bb8ff; --c6:#e6e9eb; --c7:#c9a98c; } }
"""

_TEXT = """
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin:0; background:var(--paper); color:var(--ink);
  font:16px/1.6 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif; }
main { max-width:68rem; margin:0 auto; padding:3.5rem 1.5rem 4rem; }
h1 { font-size:2rem; line-height:1.2; font-weight:650; letter-spacing:-.015em;
  margin:0 0 1rem; overflow-wrap:anywhere; }
h2 { font-size:1.3rem; font-weight:620; letter-spacing:-.01em; margin:3.5rem 0 .75rem; }
h3 { font-size:1rem; font-weight:620; margin:2.25rem 0 .6rem; }
p { max-width:44rem; margin:.6rem 0; }
a { color:var(--accent); }
.quiet, .note { color:var(--quiet); font-size:.92rem; }
.headline { border-left:4px solid var(--c2); padding:.2rem 0 .2rem 1.1rem; margin:1.75rem 0; }
.headline p:first-child { font-size:1.3rem; line-height:1.4; font-weight:560; margin:0; }
.warning { border-left:4px solid var(--c1); padding-left:1.1rem; }
dl { display:grid; grid-template-columns:max-content 1fr; gap:.3rem 1rem; max-width:44rem;
  font-size:.92rem; color:var(--quiet); }
dt { font-weight:620; color:var(--ink); } dd { margin:0; }
summary { cursor:pointer; padding:.5rem 0; color:var(--accent); }
footer { margin-top:4rem; border-top:1px solid var(--rule); padding-top:1rem; color:var(--quiet); font-size:.85rem; }
"""

_TABLES = """
.scroll { overflow-x:auto; max-width:100%; }
:focus-visible { outline:2px solid var(--accent); outline-offset:2px; border-radius:3px; }
table { border-collapse:collapse; font-variant-numeric:tabular-nums; }
.scores { min-width:100%; font-size:.95rem; }
.scores th, .scores td { padding:.5rem .75rem; border-bottom:1px solid var(--rule);
  white-space:nowrap; text-align:right; }
.scores thead th { font-weight:560; color:var(--quiet); font-size:.85rem; vertical-align:bottom; }
.scores th:first-child[scope=row], .scores th[rowspan] { text-align:left; padding-left:0; font-weight:560; }
.scores th[colspan] { text-align:center; border-bottom:0; }
.scores .first { padding-left:1.75rem; }
.scores small { color:var(--quiet); font-weight:400; font-size:.78rem; }
.scores strong { font-weight:720; }
.settings { font-size:.88rem; min-width:min(100%,36rem); }
.settings th, .settings td { padding:.32rem 1.25rem .32rem 0; border-bottom:1px solid var(--rule); text-align:left;
  vertical-align:top; overflow-wrap:anywhere; min-width:7rem; max-width:22rem; }
.settings th { white-space:nowrap; overflow-wrap:normal; }
.settings thead th { color:var(--quiet); font-weight:560; }
.settings tbody th { font-weight:400; color:var(--quiet); }
.settings .differs td { font-weight:560; }
"""

_MATRICES = """
figure { margin:0; min-width:0; max-width:100%; }
figcaption { font-size:.95rem; margin-bottom:.5rem; }
figcaption span { color:var(--quiet); font-size:.85rem; margin-left:.4rem; }
.matrices { display:flex; flex-wrap:wrap; gap:2.25rem 2.5rem; margin-top:1rem; }
.heat { border-collapse:separate; border-spacing:2px; font-size:.85rem; }
.heat td, .heat th { text-align:center; padding:0; width:2.9rem; min-width:2.9rem; height:2.1rem; }
.heat th { font-weight:500; color:var(--quiet); width:auto; min-width:1.6rem; height:1.5rem; font-size:.8rem; }
.heat thead td { height:0; }
.heat .axis { font-weight:400; text-align:left; font-size:.75rem; line-height:1.15; }
.heat .corner { min-width:2.8rem; vertical-align:bottom; }
.heat td[title] { border-radius:3px; background:rgba(var(--heat),calc(.05 + .5*var(--v,0))); cursor:default; }
.heat td.fails, .cell.fails { color:var(--fail-ink);
  background:linear-gradient(225deg,var(--fail-mark) 5px,var(--fail) 5.5px); }
.heat td.self, .cell.self { box-shadow:inset 0 0 0 2px var(--ink); }
.heat td.unknown, .cell.unknown { background:var(--soft); color:var(--quiet); }
.dense .heat { border-spacing:1px; font-size:.68rem; }
.dense .heat td { width:2.05rem; min-width:2.05rem; height:1.7rem; }
.tiny .heat { border-spacing:1px; }
.tiny .heat td { width:1.5rem; min-width:1.5rem; height:1.3rem; }
.tiny .heat td[title] { border-radius:2px; } .tiny .heat td.self { box-shadow:inset 0 0 0 1.5px var(--ink); }
.tiny .heat th { font-size:.66rem; height:1.3rem; min-width:1.2rem; } .tiny .heat thead td { height:0; }
.heat .axis { font-size:.75rem; }
.tiny td span { position:absolute; width:1px; height:1px; overflow:hidden; clip-path:inset(50%); }
.tiny td { position:relative; }
.legend { display:flex; flex-wrap:wrap; align-items:center; gap:.4rem .6rem; max-width:none;
  font-size:.82rem; color:var(--quiet); }
.ramp { width:7rem; height:.8rem; border-radius:3px;
  background:linear-gradient(90deg,rgba(var(--heat),.05),rgba(var(--heat),.55)); }
.key { display:inline-flex; align-items:center; gap:.4rem; margin-left:.9rem; }
.cell { width:1.3rem; height:1rem; border-radius:3px; display:inline-block; text-align:center;
  line-height:.9rem; font-style:normal; }
"""

_CHARTS = """
.charts { display:grid; grid-template-columns:repeat(auto-fit,minmax(min(100%,26rem),1fr)); gap:1.5rem 2.5rem;
  margin-top:2.5rem; }
.chart { max-width:32rem; } .chart svg { width:100%; height:auto; display:block; overflow:visible; }
svg text { font-size:12px; fill:var(--quiet); } svg .y { text-anchor:end; } svg .x, svg .name { text-anchor:middle; }
svg .grid { stroke:var(--rule); }
.line polyline { fill:none; stroke:var(--s); stroke-width:2; stroke-linejoin:round; }
.line circle, .line rect, .line path { fill:var(--s); stroke:var(--paper); stroke-width:1; }
.line path.open { fill:none; stroke:var(--s); stroke-width:2; }
.end text { fill:var(--s); font-weight:560; } .end line { stroke:var(--s); stroke-width:1; opacity:.45; }
.c0{--s:var(--c0)} .c1{--s:var(--c1)} .c2{--s:var(--c2)} .c3{--s:var(--c3)}
.c4{--s:var(--c4)} .c5{--s:var(--c5)} .c6{--s:var(--c6)} .c7{--s:var(--c7)}
.switch > input { position:absolute; opacity:0; }
.switch > label { display:inline-block; padding:.35rem 1rem; border:1px solid var(--rule); border-radius:99px;
  margin:0 .35rem .5rem 0; cursor:pointer; font-size:.92rem; color:var(--quiet); }
.switch > input:checked + label { color:var(--paper); background:var(--ink); border-color:var(--ink); }
.switch > input:focus-visible + label { outline:2px solid var(--accent); outline-offset:2px; }
.view { display:none; } .view > h3:first-child { display:none; }
"""

_SMALL_SCREENS_AND_PRINT = """
@media (max-width:40rem) { main { padding:2rem 1rem 3rem; } h1 { font-size:1.6rem; }
  .headline p:first-child { font-size:1.12rem; }
  .key { margin-left:0; width:100%; } dl { grid-template-columns:1fr; gap:.1rem; } dd { margin-bottom:.5rem; } }
@media print { body { font-size:11pt; } main { max-width:none; padding:0; }
  .switch > label, .switch > input { display:none; }
  .view, .view > h3:first-child { display:block; } figure, tr { break-inside:avoid; } .scroll { overflow:visible; }
  * { print-color-adjust:exact; -webkit-print-color-adjust:exact; } }
"""


def style(views: int) -> str:
    """The style sheet of a report with ``views`` protocols to switch between."""
    shown = "".join(f"#protocol-{i}:checked ~ .view-{i} {{ display:block; }}\n" for i in range(views))
    return _COLOURS + _TEXT + _TABLES + _MATRICES + _CHARTS + shown + _SMALL_SCREENS_AND_PRINT
