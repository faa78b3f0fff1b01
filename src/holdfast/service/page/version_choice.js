// Versions in the search view: the choice of one version's items, and each version's share of the items and of the hits.

import { badge, byId, element, formatPercent } from "./dom.js";

let versions = []; // of the last answer of GET /v1/versions, oldest first
let counts = null; // hits by version of the search that is shown; null if none is

/** state: the answer of GET /v1/versions. */
export function showVersionChoice(state) {
  versions = state.versions;
  const select = byId("version");
  const wanted = ["", ...versions.map((one) => String(one.number)).toReversed()];
  const existing = [...select.options].map((option) => option.value);
  if (wanted.join() !== existing.join()) {
    const chosen = select.value;
    const text = (value) => (value === "" ? "all versions" : `version ${value}`);
    select.replaceChildren(...wanted.map((value) => element("option", { value }, text(value))));
    select.value = wanted.includes(chosen) ? chosen : ""; // the version may have been rolled back
  }
  byId("version-field").hidden = versions.length < 2;
  drawShares();
}

/** The versions to search, as the service takes them; null for all. */
export function chosenVersions() {
  const { value } = byId("version");
  return value === "" ? null : [Number(value)];
}

/** hits: those that are shown; null to show no shares, because there are no hits or they are of one version's items. */
export function showShares(hits) {
  counts = hits === null ? null : new Map();
  for (const hit of hits ?? []) counts.set(hit.version, (counts.get(hit.version) ?? 0) + 1);
  drawShares();
}

function drawShares() {
  const list = byId("shares");
  const holding = versions.filter((one) => one.items > 0).toReversed();
  if (counts === null || holding.length < 2) {
    list.replaceChildren();
    return;
  }
  const total = [...counts.values()].reduce((sum, count) => sum + count, 0);
  const line = ({ number, share }) => {
    const shown = formatPercent((counts.get(number) ?? 0) / total);
    return element("li", {}, badge(number), ` holds ${formatPercent(share)} of the items and ${shown} of these hits`);
  };
  list.replaceChildren(...holding.map(line));
}
