// The models of a gallery, one row each.

import { element, foreign } from "./dom.js";
import * as figures from "./figures.js";
import { badge, toned } from "./tones.js";

export function drawModels(list, versions) {
  list.replaceChildren(...versions.toReversed().map(row));
}

function row(version) {
  const share = element("div", { class: "meter" }, element("span"));
  share.firstChild.style.width = `${100 * (version.share ?? 0)}%`;
  const held = version.share === null ? figures.items(0) : `${figures.items(version.items)}, ${figures.percent(version.share)}`;
  const made = element(
    "li",
    { class: "model" },
    element("p", { class: "name" }, badge(version.number, `version ${version.number}`), " ", foreign(version.name), version.newest ? element("span", { class: "tag" }, "answers now") : null),
    element(
      "dl",
      {},
      fact("Backbone", version.backbone ?? "not known"),
      fact("K", version.slots === null ? "no slots" : figures.count(version.slots)),
      fact("Numbers kept", version.stored_dim === version.dim ? figures.count(version.dim) : `${figures.count(version.stored_dim)} of ${figures.count(version.dim)}`),
      fact("Registered", figures.date(version.registered), figures.moment(version.registered)),
      fact("Weights", version.weights),
    ),
    element("div", { class: "held" }, share, element("p", {}, held), version.unindexed ? element("p", { class: "hint" }, `${figures.count(version.unindexed)} not indexed yet`) : null),
  );
  return toned(made, version.number);
}

function fact(name, value, title = null) {
  return element("div", { title }, element("dt", {}, name), element("dd", {}, foreign(value)));
}
