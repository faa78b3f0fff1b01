// Hits as cards.

import { button, definitions, element, foreign } from "./dom.js";
import * as figures from "./figures.js";
import { goToItem } from "./route.js";
import { picture } from "./thumbnails.js";
import { badge, toned } from "./tones.js";

const FIELDS_SHOWN = 4;

export function card(hit, place) {
  const more = button("More like this", () => goToItem(hit.id), { class: "more", tabindex: place === 0 ? 0 : -1 });
  const score = figures.score(hit.score);
  more.setAttribute("aria-label", `More like ${hit.id}, hit ${place + 1}, score ${score}, version ${hit.version}`);
  const seen = picture(hit);
  seen.addEventListener("click", () => more.click());
  const meter = element("div", { class: "meter" }, element("span"));
  meter.firstChild.style.width = `${100 * Math.min(1, Math.max(0, hit.score))}%`;
  const body = element(
    "div",
    { class: "about" },
    element("p", { class: "score" }, element("span", { class: "figure" }, score), badge(hit.version)),
    meter,
    element("p", { class: "id" }, foreign(hit.id)),
    hit.label === null ? null : element("p", { class: "label" }, foreign(hit.label)),
    metadata(hit.metadata),
    more,
  );
  const rank = element("span", { class: "rank", "aria-hidden": "true" }, String(place + 1));
  return toned(element("li", { class: "hit" }, rank, seen, body), hit.version);
}

function metadata(fields) {
  const rows = Object.entries(fields);
  if (rows.length === 0) return null;
  const shown = definitions(rows.slice(0, FIELDS_SHOWN));
  if (rows.length <= FIELDS_SHOWN) return shown;
  const rest = definitions(rows.slice(FIELDS_SHOWN));
  const summary = element("summary", {}, `${rows.length - FIELDS_SHOWN} more`);
  return element("div", {}, shown, element("details", {}, summary, rest));
}
