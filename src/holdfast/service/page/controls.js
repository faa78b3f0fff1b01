// How many hits, which items, how thorough.

import { byId } from "./dom.js";
import { addCondition, offerFields, readFilter } from "./filter.js";

export function prepareControls(changed) {
  const form = byId("controls");
  byId("refine").open = !matchMedia("(max-width: 56rem)").matches; // on a phone the hits come first
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    changed();
  });
  form.addEventListener("change", changed);
  byId("add-condition").addEventListener("click", addCondition);
}

export function offerControls(gallery) {
  byId("k").max = gallery.limits.k;
  byId("exact-field").hidden = gallery.mode === "exact";
  offerFields(gallery.fields);
}

/** What to ask with, or null where a control holds something that cannot be asked for; it says so itself. */
export function readControls() {
  const k = byId("k");
  const problem = byId("filter-problem");
  problem.textContent = "";
  if (!k.checkValidity()) {
    k.reportValidity();
    return null;
  }
  try {
    return { k: k.valueAsNumber, filter: readFilter(), exact: byId("exact").checked };
  } catch (error) {
    problem.textContent = error.message;
    return null;
  }
}
