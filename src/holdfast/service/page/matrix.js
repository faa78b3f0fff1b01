// The compatibility matrix: queries of the row's version on items of the column's version.

import {
  badge,
  byId,
  definitions,
  element,
  formatCount,
  formatItems,
  formatPercent,
  formatPoints,
  isolated,
} from "./dom.js";

// verdict: [class, sign, word]. The sign and the word say it without the colour.
const VERDICTS = {
  better: ["good", "✓", "better"],
  "not shown": ["doubt", "~", "not shown"],
  worse: ["bad", "✕", "worse"],
  "not judged": ["unknown", "?", "not judged"],
};
// The answer to "at most 1 point lost" decides. Checks of earlier versions of Holdfast have a verdict only.
const ANSWERS = {
  yes: ["good", "✓", "passes"],
  "not shown": ["doubt", "~", "not shown"],
  no: ["bad", "✕", "fails"],
};
const UNKNOWN = ["unknown", "–", "not known"];

const signOf = (cell) => ANSWERS[cell.loss?.answer] ?? VERDICTS[cell.verdict] ?? UNKNOWN;

let selected = null; // the key of the cell that is shown in detail

const keyOf = (cell) => `${cell.query} ${cell.items}`;

/** state: the answer of GET /v1/versions. */
export function drawMatrix(box, state) {
  if (state.matrix.length === 0) {
    box.replaceChildren(element("p", {}, "There is only one version, so there is nothing to compare yet."));
    return;
  }
  const cells = new Map(state.matrix.map((cell) => [keyOf(cell), cell]));
  const older = state.versions.filter((one) => !one.newest);
  const corner = element("th", { class: "corner", scope: "col" }, "queries of ↓ on items of →");
  const columns = older.map((one) =>
    element("th", { scope: "col" }, badge(one.number, `items of version ${one.number}`)),
  );
  const row = (query) => {
    const title = badge(query.number, `queries of version ${query.number}`);
    const verdicts = older.map((items) => {
      const cell = cells.get(keyOf({ query: query.number, items: items.number }));
      return cell ? element("td", {}, cellButton(cell)) : element("td", { class: "blank" });
    });
    return element("tr", {}, element("th", { scope: "row" }, title), ...verdicts);
  };
  const head = element("thead", {}, element("tr", {}, corner, ...columns));
  const body = element("tbody", {}, ...state.versions.slice(1).toReversed().map(row));
  const detail = element("div", {
    class: "detail",
    id: "detail",
    role: "region",
    "aria-label": "The selected check",
    "aria-live": "polite",
  });
  box.replaceChildren(element("div", { class: "scroll" }, element("table", {}, head, body)), detail);
  select(cells.get(selected) ?? state.matrix.at(-1));
}

function cellButton(cell) {
  const [kind, sign, word] = signOf(cell);
  const made = element(
    "button",
    { type: "button", class: `verdict ${kind}`, "data-cell": keyOf(cell), "aria-controls": "detail" },
    element("span", { class: "sign", "aria-hidden": "true" }, sign),
    element("span", {}, word),
    cell.gain ? element("span", { class: "gain" }, `${formatPoints(cell.gain.value)} points`) : null,
  );
  made.addEventListener("click", () => select(cell));
  return made;
}

function select(cell) {
  selected = keyOf(cell);
  for (const one of byId("matrix").querySelectorAll(".verdict"))
    one.setAttribute("aria-pressed", one.dataset.cell === selected);
  const [, , word] = signOf(cell);
  const verdict = cell.loss ? `: ${cell.loss.question.toLowerCase()}: ${cell.loss.answer}` : `: ${cell.verdict ?? word}`;
  byId("detail").replaceChildren(
    element("p", { class: "title" }, "Queries of ", badge(cell.query), " on items of ", badge(cell.items), verdict),
    element("p", {}, isolated(cell.reason)),
    ...(cell.gain ? [measurements(cell)] : []),
  );
}

function measurements(cell) {
  const interval = ({ value, low, high }, format) => `${format(value)} (${format(low)} to ${format(high)})`;
  return definitions([
    [`Queries of v${cell.items}, ${cell.score}`, interval(cell.self_test, formatPercent)],
    [`Queries of v${cell.query}, ${cell.score}`, interval(cell.cross_test, formatPercent)],
    ["Gain, points", interval(cell.gain, formatPoints)],
    ...(cell.loss ? [["Strict verdict (a gain above 0)", cell.verdict]] : []),
    ...(cell.without ? [["Gain without the bridge, points", interval(cell.without.gain, formatPoints)]] : []),
    ["Measured with", `${formatCount(cell.queries)} queries among ${formatItems(cell.gallery)}`],
    ...(cell.items_used ? [["Queries", cell.items_used.text]] : []),
  ]);
}
