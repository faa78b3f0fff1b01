// The versions' panel and the layers in the page's head.

import { drawBackfill } from "./backfill.js";
import { byId } from "./dom.js";
import { drawMatrix } from "./matrix.js";
import { drawModels } from "./models.js";
import { drawStrata } from "./strata.js";

const LOOKS_KEPT = 60;

const seen = [];
let drawn = { models: "", matrix: "" };

export function drawVersions(state) {
  const newest = state.versions.at(-1);
  seen.push({ at: performance.now(), newest: newest.items, older: state.items - newest.items });
  if (seen.length > LOOKS_KEPT) seen.shift();
  drawStrata(byId("strata"), state.versions);
  drawBackfill(byId("backfill"), state, seen);
  // Only what has changed: whoever has the focus in there keeps it.
  const now = { models: JSON.stringify(state.versions), matrix: JSON.stringify([state.matrix, newest.number]) };
  if (now.models !== drawn.models) drawModels(byId("models"), state.versions);
  if (now.matrix !== drawn.matrix) drawMatrix(byId("matrix"), state);
  drawn = now;
  byId("versions-status").textContent = "";
}

export function versionsLate(error) {
  byId("versions-status").textContent = `Not up to date: ${error.message}`;
}
