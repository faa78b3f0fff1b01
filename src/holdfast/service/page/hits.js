// Hits as cards.

import { button, element, foreign } from "./dom.js";
import * as figures from "./figures.js";
import { goToItem } from "./route.js";
import { picture } from "./thumbnails.js";
import { badge, toned } from "./tones.js";

const FIELDS_SHOWN = 4;

export function card(hit, place) {
  const more = button("More like this", () => goToItem(hit.id), { class: "more", tabindex: place === 0 ? 0 : -1 });
  more.setAttribute("aria-label", `More like ${hit.id}, hit ${place + 1}, score ${figures.score(hit.score)}, version ${hit.version}`);
  const seen = picture(hit);
  seen.addEventListener("click", () => more.click());
  const meter = element("div", { class: "meter" }, element("span"));
  meter.firstChild.style.width = `${100 * Math.min(1, Math.max(0, hit.score))}%`;
  const body = element(
    "div",
    { class: "about" },
    element("p", { class: "score" }, element("span", { class: "figure" }, figures.score(hit.score)), badge(hit.version)),
    meter,
    element("p", { class: "id" }, foreign(hit.id)),
    hit.label === null ? null : element("p", { class: "label" }, foreign(hit.label)),
    metadata(hit.metadata),
    more,
  );
  return toned(element("li", { class: "hit" }, element("span", { class: "rank", "aria-hidden": "true" }, String(place + 1)), seen, body), hit.version);
}

function metadata(fields) {
  const rows = Object.entries(fields).map(([name, value]) =>
    element("div", {}, element("dt", {}, foreign(name)), element("dd", {}, foreign(value))),
  );
  if (rows.length === 0) return null;
  const shown = element("dl", {}, ...rows.slice(0, FIELDS_SHOWN));
  if (rows.length <= FIELDS_SHOWN) return shown;
  const rest = element("dl", {}, ...rows.slice(FIELDS_SHOWN));
  const summary = element("summary", {}, `${rows.length - FIELDS_SHOWN} more`);
  return element("div", {}, shown, element("details", {}, summary, rest));
}
