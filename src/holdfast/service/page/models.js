// The models of a gallery, one row each.

import { definitions, element, foreign } from "./dom.js";
import * as figures from "./figures.js";
import { badge, toned } from "./tones.js";

export function drawModels(list, versions) {
  list.replaceChildren(...versions.toReversed().map(row));
}

function row(version) {
  const share = element("div", { class: "meter" }, element("span"));
  share.firstChild.style.width = `${100 * (version.share ?? 0)}%`;
  const unindexed = `${figures.count(version.unindexed)} not indexed yet`;
  const held = element(
    "div",
    { class: "held" },
    share,
    element(
      "p",
      {},
      figures.items(version.items) + (version.share === null ? "" : `, ${figures.percent(version.share)}`),
    ),
    version.unindexed ? element("p", { class: "hint" }, unindexed) : null,
  );
  const name = element(
    "p",
    { class: "name" },
    badge(version.number, `version ${version.number}`),
    " ",
    foreign(version.name),
  );
  if (version.newest) name.append(element("span", { class: "tag" }, "answers now"));
  return toned(element("li", { class: "model" }, name, definitions(facts(version)), held), version.number);
}

function facts({ backbone, slots, dim, stored_dim: stored, registered, weights }) {
  return [
    ["Backbone", backbone ?? "not known"],
    ["K", slots === null ? "no slots" : figures.count(slots)],
    ["Numbers kept", stored === dim ? figures.count(dim) : `${figures.count(stored)} of ${figures.count(dim)}`],
    ["Registered", figures.date(registered), figures.moment(registered)],
    ["Weights", weights],
  ];
}
