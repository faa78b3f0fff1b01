// How far a backfill is, told by the versions' counts alone: whoever moves the items, they can be watched.

import { element } from "./dom.js";
import * as figures from "./figures.js";
import { drawStrata } from "./strata.js";
import { badge } from "./tones.js";

const WINDOW_MS = 30_000;

/** Items per second that newer versions won from older ones within the last half minute, or 0. */
export function moveRate(seen) {
  const recent = seen.filter((one) => one.at >= seen.at(-1).at - WINDOW_MS);
  const [first, last] = [recent[0], recent.at(-1)];
  if (first === last || first.older <= last.older || first.newest >= last.newest) return 0;
  return (first.older - last.older) / ((last.at - first.at) / 1000);
}

/** seen: {at, older, newest} for every look so far, the last of them being `state`. */
export function drawBackfill(box, state, seen) {
  const newest = state.versions.find((one) => one.newest);
  if (!box.firstChild) {
    const bar = element("progress", { max: 1, "aria-label": "Items embedded by the newest version" });
    box.replaceChildren(element("div", { class: "strata" }), element("ul", { class: "legend" }), bar, element("p", { class: "progress" }));
  }
  const [strata, legend, bar, told] = box.children;
  drawStrata(strata, state.versions);
  const holding = state.versions.filter((one) => one.items > 0);
  legend.replaceChildren(...holding.map((one) => element("li", {}, badge(one.number), ` ${figures.items(one.items)}, ${figures.percent(one.share)}`)));
  bar.value = newest.share ?? 0;
  bar.hidden = state.items === 0;
  told.textContent = sentence(state, newest, moveRate(seen));
}

function sentence(state, newest, rate) {
  if (state.items === 0) return "No items yet, so nothing to embed again.";
  const left = state.items - newest.items;
  if (left === 0) return `All ${figures.items(state.items)} are embedded by v${newest.number}.`;
  const there = `${figures.percent(newest.share)} embedded by v${newest.number}; ${figures.items(left)} by older versions.`;
  if (rate === 0) return `${there} Nothing is moving.`;
  return `${there} Moving ${figures.count(Math.max(1, Math.round(rate)))} a second, about ${figures.duration(left / rate)} left.`;
}
