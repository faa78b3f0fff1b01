// A version has one colour wherever it is seen; beside it always stands its number.

import { element } from "./dom.js";

const HUES = [78, 165, 232, 300, 25, 125, 200, 265];

export function toned(target, version) {
  target.style.setProperty("--hue", HUES[(version - 1) % HUES.length]);
  return target;
}

export function badge(version, title = `embedded by version ${version}`) {
  return toned(
    element("span", { class: "badge", title }, element("span", { class: "hidden" }, "version "), `v${version}`),
    version,
  );
}
