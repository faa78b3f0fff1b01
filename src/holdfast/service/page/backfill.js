// How far a backfill is, told by the versions' counts alone: whoever moves the items, they can be watched.

import { element } from "./dom.js";
import * as figures from "./figures.js";
import { drawStrata } from "./strata.js";
import { badge } from "./tones.js";

const WINDOW_MS = 30_000;

/** Items per second that newer versions won from older ones within the last half minute, or 0. */
export function moveRate(seen) {
  const recent = seen.filter((one) => one.at >= seen.at(-1).at - WINDOW_MS);
  let moved = 0;
  for (let n = 1; n < recent.length; n++) {
    // Items that are only added or deleted do not count as moved.
    const [lost, won] = [recent[n - 1].older - recent[n].older, recent[n].newest - recent[n - 1].newest];
    moved += Math.max(0, Math.min(lost, won));
  }
  return moved === 0 ? 0 : moved / ((recent.at(-1).at - recent[0].at) / 1000);
}

/** seen: {at, older, newest} for every look so far, the last of them being `state`. */
export function drawBackfill(box, state, seen) {
  const newest = state.versions.find((one) => one.newest);
  if (!box.firstChild) {
    box.append(
      element("p", { class: "progress" }),
      element("div", { class: "strata" }),
      element("ul", { class: "legend" }),
    );
  }
  const [told, strata, legend] = box.children;
  told.replaceChildren(...sentence(state, newest, moveRate(seen)));
  drawStrata(strata, state.versions);
  const holding = state.versions.filter((one) => one.items > 0).toReversed();
  legend.replaceChildren(
    ...holding.map((one) =>
      element("li", {}, badge(one.number), ` ${figures.items(one.items)}, ${figures.percent(one.share)}`),
    ),
  );
}

function sentence(state, newest, rate) {
  if (state.items === 0) return ["No items yet, so nothing to embed again."];
  const left = state.items - newest.items;
  const share = element("strong", {}, figures.percent(newest.share));
  if (left === 0) return [share, `All ${figures.items(state.items)} are embedded by v${newest.number}.`];
  const there = `embedded by v${newest.number}; ${figures.items(left)} by older versions.`;
  const moving = `Moving ${figures.count(Math.max(1, Math.round(rate)))} a second`;
  const pace = `${moving}, about ${figures.duration(left / rate)} left.`;
  return [share, `${there} ${rate === 0 ? "Nothing is moving." : pace}`];
}
