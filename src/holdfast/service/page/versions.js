// The versions view: models, shares of the items, the progress of a backfill. Also the share bar in the page's head.

import { loadVersions } from "./api.js";
import {
  badge,
  byId,
  definitions,
  element,
  formatCount,
  formatDate,
  formatDuration,
  formatItems,
  formatPercent,
  formatRatio,
  formatTime,
  isolated,
  meter,
  sentence,
  setVersionColour,
} from "./dom.js";
import { drawMatrix } from "./matrix.js";

const POLL_VISIBLE_MS = 2000;
const POLL_HIDDEN_MS = 20_000;
const SAMPLES_KEPT = 60;
const RATE_WINDOW_MS = 30_000;

const samples = []; // {at, older, newest} of every answer so far: the time, items of older versions, of the newest
let drawn = { models: "", matrix: "" };

/**
 * Load the versions again and again, because models are registered and items re-embedded while the page is open.
 * isVisible: whether the versions view is shown; it is then polled more often.
 * onState: called with every answer. onError: called with the error if there is none.
 * Returns a function that polls at once.
 */
export function pollVersions({ isVisible, onState, onError }) {
  let timer = null;
  let latest = 0; // answers to earlier polls are ignored

  async function poll() {
    clearTimeout(timer);
    const number = ++latest;
    try {
      const state = await loadVersions();
      if (number === latest) onState(state);
    } catch (error) {
      if (number === latest) onError(error);
    }
    if (number === latest) timer = setTimeout(pollIfShown, isVisible() ? POLL_VISIBLE_MS : POLL_HIDDEN_MS);
  }

  function pollIfShown() {
    if (!document.hidden) poll();
  }

  document.addEventListener("visibilitychange", pollIfShown);
  return poll;
}

/** state: the answer of GET /v1/versions. */
export function drawVersions(state) {
  const newest = state.versions.find((one) => one.newest);
  samples.push({ at: performance.now(), newest: newest.items, older: state.items - newest.items });
  if (samples.length > SAMPLES_KEPT) samples.shift();
  drawShareBar(byId("share-bar"), state.versions);
  drawBackfill(byId("backfill"), state);
  // Only changed parts are drawn again: an element that has the focus keeps it.
  const current = { models: JSON.stringify(state.versions), matrix: JSON.stringify([state.matrix, newest.number]) };
  byId("bridges-hint").hidden = state.versions.every((one) => one.bridges.length === 0);
  if (current.models !== drawn.models) byId("models").replaceChildren(...state.versions.toReversed().map(modelRow));
  if (current.matrix !== drawn.matrix) drawMatrix(byId("matrix"), state);
  drawn = current;
  byId("versions-status").textContent = "";
}

export function showVersionsError(error) {
  byId("versions-status").textContent = `Not up to date: ${sentence(error.message)}`;
}

/** The share of each version, the newest at the left. Segments are kept and change their width. */
function drawShareBar(bar, versions) {
  const shown = versions.filter((one) => one.items > 0).toReversed();
  bar.hidden = shown.length === 0;
  bar.setAttribute("role", "img");
  const text = shown.map((one) => `v${one.number} ${formatPercent(one.share)}`).join(", ");
  bar.setAttribute("aria-label", `Share of the items: ${text}`);
  const existing = new Map([...bar.children].map((segment) => [segment.dataset.version, segment]));
  const segments = shown.map((one) => {
    const segment =
      existing.get(String(one.number)) ??
      setVersionColour(element("span", { "data-version": one.number }), one.number);
    segment.style.flexGrow = one.share;
    segment.title = `v${one.number}: ${formatPercent(one.share)}`;
    return segment;
  });
  if (segments.length !== bar.children.length || segments.some((segment, n) => bar.children[n] !== segment)) {
    bar.replaceChildren(...segments);
  }
}

// The progress of a backfill is computed from the versions' counts, so it is shown whichever process runs it.

function drawBackfill(box, state) {
  if (!box.firstChild) {
    box.append(
      element("p", { class: "progress" }),
      element("div", { class: "share-bar" }),
      element("ul", { class: "legend" }),
    );
  }
  const [progress, bar, legend] = box.children;
  progress.replaceChildren(...progressText(state));
  drawShareBar(bar, state.versions);
  const filled = state.versions.filter((one) => one.items > 0).toReversed();
  const entry = (one) =>
    element("li", {}, badge(one.number), ` ${formatItems(one.items)}, ${formatPercent(one.share)}`);
  legend.replaceChildren(...filled.map(entry));
}

function progressText(state) {
  if (state.items === 0) return ["No items yet, so there is nothing to re-embed."];
  const newest = state.versions.find((one) => one.newest);
  const left = state.items - newest.items;
  const share = element("strong", {}, formatPercent(newest.share));
  if (left === 0) return [share, `All ${formatItems(state.items)} are embedded by v${newest.number}.`];
  const counts = `embedded by v${newest.number}; ${formatItems(left)} by older versions.`;
  const rate = backfillRate();
  if (rate === 0) return [share, `${counts} No items are being re-embedded.`];
  const speed = `Re-embedding ${formatItems(Math.max(1, Math.round(rate)))} per second`;
  return [share, `${counts} ${speed}, about ${formatDuration(left / rate)} left.`];
}

/** Items per second that changed from an older version to the newest within the last half minute. */
function backfillRate() {
  const recent = samples.filter((one) => one.at >= samples.at(-1).at - RATE_WINDOW_MS);
  let moved = 0;
  for (let n = 1; n < recent.length; n++) {
    // Items that are only added or deleted are not counted.
    const [lost, gained] = [recent[n - 1].older - recent[n].older, recent[n].newest - recent[n - 1].newest];
    moved += Math.max(0, Math.min(lost, gained));
  }
  return moved === 0 ? 0 : moved / ((recent.at(-1).at - recent[0].at) / 1000);
}

function modelRow(version) {
  const number = badge(version.number, `version ${version.number}`);
  const name = element("p", { class: "name" }, number, " ", isolated(version.name));
  if (version.newest) name.append(element("span", { class: "tag" }, "newest"));
  const share = version.share === null ? "" : `, ${formatPercent(version.share)}`;
  const waiting = `${formatItems(version.unindexed)} compared one by one until the search index is rebuilt`;
  const items = element(
    "div",
    { class: "held" },
    meter(version.share ?? 0),
    element("p", {}, formatItems(version.items) + share),
    version.unindexed ? element("p", { class: "hint" }, waiting) : null,
  );
  const facts = definitions(modelFacts(version));
  const row = element("li", { class: "model" }, name, facts, items, bridgeList(version.bridges));
  return setVersionColour(row, version.number);
}

function modelFacts({ backbone, slots, dim, stored_dim: stored, registered, weights }) {
  const length = stored === dim ? formatCount(dim) : `${formatCount(stored)}, made from ${formatCount(dim)}`;
  return [
    ["Network", backbone ?? "not known"],
    ...(slots === null ? [] : [["Most classes", formatCount(slots), "Places for classes, now and in later versions"]]),
    ["Vector length", length, "How many numbers are stored for each item"],
    ["Added", formatDate(registered), formatTime(registered)],
    ["Weights", weights, "The first digits of the SHA-256 of the model's weights"],
  ];
}

const BRIDGES_SHOWN = 3;

/** bridges: of one version, oldest target first. More than three are folded, the newest targets shown. */
function bridgeList(bridges) {
  if (bridges.length === 0) return null;
  const rows = bridges.toReversed().map(bridgeRow);
  const list = (some) => element("ul", {}, ...some);
  if (rows.length <= BRIDGES_SHOWN) return element("div", { class: "bridges" }, list(rows));
  const folded = rows.length - BRIDGES_SHOWN;
  const summary = element("summary", {}, `${folded} more ${folded === 1 ? "bridge" : "bridges"}`);
  const more = element("details", {}, summary, list(rows.slice(BRIDGES_SHOWN)));
  return element("div", { class: "bridges" }, list(rows.slice(0, BRIDGES_SHOWN)), more);
}

function bridgeRow(bridge) {
  const target = badge(bridge.version, `queries on items of version ${bridge.version}`);
  const pairs = `${formatCount(bridge.pairs)} pairs`;
  const map = bridge.kind === "none" ? `queries as they are, by ${pairs}` : `bridge ${bridge.kind} from ${pairs}`;
  const warning = bridge.agrees_beyond_chance ? null : element("strong", { class: "problem" }, "no bridge connects the models");
  return element("li", {}, element("span", {}, "to ", target), element("span", {}, map), warning, exposure(bridge));
}

/** Expected exposure at 1 and 10, with the bridge and without. */
function exposure({ kind, exposure: used, exposure_without: without }) {
  const places = Object.keys(used);
  if (places.length === 0) return element("span", { class: "hint" }, "too few pairs to expect an exposure");
  const title = "1 means: shown as often as after a full re-embedding";
  const bare = (k) => (without === null ? "not found" : formatRatio(without[k]));
  const text = (k) => `at ${k}: ${formatRatio(used[k])}${kind === "none" ? "" : ` (${bare(k)} without)`}`;
  return element("span", { title }, `expected exposure ${places.map(text).join(", ")}`);
}
