// Who was found compatible with whom: queries of the row's version on items of the column's.

import { byId, definitions, element, foreign } from "./dom.js";
import * as figures from "./figures.js";
import { badge } from "./tones.js";

// verdict: [class, sign, word]; the sign and the word carry it, the colour only helps
const VERDICTS = {
  compatible: ["good", "✓", "compatible"],
  "not shown": ["doubt", "~", "not shown"],
  incompatible: ["bad", "✕", "incompatible"],
  "could not be judged": ["unknown", "?", "not judged"],
};
const UNKNOWN = ["unknown", "–", "not known"];

let chosen = null;

export function drawMatrix(box, state) {
  if (state.matrix.length === 0) {
    box.replaceChildren(element("p", {}, "One version only: there is nothing to compare yet."));
    return;
  }
  const cells = new Map(state.matrix.map((cell) => [key(cell), cell]));
  const olds = state.versions.filter((one) => !one.newest);
  const corner = element("th", { class: "corner", scope: "col" }, "queries of ↓ on items of →");
  const columns = olds.map((one) =>
    element("th", { scope: "col" }, badge(one.number, `items of version ${one.number}`)),
  );
  const head = element("tr", {}, corner, ...columns);
  const rows = state.versions
    .slice(1)
    .toReversed()
    .map((asking) =>
      element(
        "tr",
        {},
        element("th", { scope: "row" }, badge(asking.number, `queries of version ${asking.number}`)),
        ...olds.map((held) => {
          const cell = cells.get(`${asking.number} ${held.number}`);
          return cell ? element("td", {}, face(cell)) : element("td", { class: "blank" });
        }),
      ),
    );
  const table = element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows));
  const detail = element("div", {
    class: "detail",
    id: "detail",
    role: "region",
    "aria-label": "The chosen check",
    "aria-live": "polite",
  });
  box.replaceChildren(element("div", { class: "scroll" }, table), detail);
  choose(cells.get(chosen) ?? state.matrix.at(-1));
}

const key = (cell) => `${cell.query} ${cell.items}`;

function face(cell) {
  const [kind, sign, word] = VERDICTS[cell.verdict] ?? UNKNOWN;
  const gain = cell.gain ? element("span", { class: "gain" }, `${figures.points(cell.gain.value)} points`) : null;
  const made = element(
    "button",
    { type: "button", class: `verdict ${kind}`, "data-cell": key(cell), "aria-controls": "detail" },
    element("span", { class: "sign", "aria-hidden": "true" }, sign),
    element("span", {}, word),
    gain,
  );
  made.addEventListener("click", () => choose(cell));
  return made;
}

function choose(cell) {
  chosen = key(cell);
  for (const one of byId("matrix").querySelectorAll(".verdict"))
    one.setAttribute("aria-pressed", one.dataset.cell === chosen);
  const [, , word] = VERDICTS[cell.verdict] ?? UNKNOWN;
  byId("detail").replaceChildren(
    element(
      "p",
      { class: "title" },
      "Queries of ",
      badge(cell.query),
      " on items of ",
      badge(cell.items),
      `: ${cell.verdict ?? word}`,
    ),
    element("p", {}, foreign(cell.reason)),
    measured(cell),
  );
}

function measured(cell) {
  if (!cell.gain) return null;
  const told = ({ value, low, high }, form) => `${form(value)} (${form(low)} to ${form(high)})`;
  const rows = [
    [`v${cell.items} asks, ${cell.score}`, told(cell.self_test, figures.percent)],
    [`v${cell.query} asks, ${cell.score}`, told(cell.cross_test, figures.percent)],
    ["Gain, points", told(cell.gain, figures.points)],
    ["Measured with", `${figures.count(cell.queries)} queries among ${figures.items(cell.gallery)}`],
  ];
  return definitions(rows);
}
