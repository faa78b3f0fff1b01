// The gallery as layers: how much of it each version has embedded.

import { element } from "./dom.js";
import { percent } from "./figures.js";
import { toned } from "./tones.js";

/** The newest at the left, so that it grows like a bar of progress. Layers are kept and only change their width. */
export function drawStrata(box, versions) {
  const shown = versions.filter((one) => one.items > 0).toReversed();
  box.hidden = shown.length === 0;
  box.setAttribute("role", "img");
  const told = shown.map((one) => `v${one.number} ${percent(one.share)}`).join(", ");
  box.setAttribute("aria-label", `Share of the items: ${told}`);
  const layers = new Map([...box.children].map((layer) => [layer.dataset.version, layer]));
  const kept = shown.map((one) => {
    const layer = layers.get(String(one.number)) ?? toned(element("span", { "data-version": one.number }), one.number);
    layer.style.flexGrow = one.share;
    layer.title = `v${one.number}: ${percent(one.share)}`;
    return layer;
  });
  if (kept.length !== box.children.length || kept.some((layer, place) => box.children[place] !== layer)) {
    box.replaceChildren(...kept);
  }
}
