// Hits as cards: images, facts, arrow keys.

import { loadThumbnail } from "./api.js";
import {
  badge,
  button,
  byId,
  definitions,
  element,
  formatScore,
  idText,
  isolated,
  meter,
  setVersionColour,
} from "./dom.js";
import { goToItem } from "./state.js";

const FIELDS_SHOWN = 4;
const THUMBNAIL_SIZE = 320;
const PIXELATED_BELOW = 96;

export function card(hit, position) {
  const score = formatScore(hit.score);
  const more = button("More like this", () => goToItem(hit.id), {
    class: "more",
    tabindex: position === 0 ? 0 : -1,
    "aria-label": `More like ${hit.id}, hit ${position + 1}, score ${score}, version ${hit.version}`,
  });
  const image = picture(hit);
  image.addEventListener("click", () => more.click());
  const body = element(
    "div",
    { class: "about" },
    element("p", { class: "score" }, element("span", { class: "figure" }, score), badge(hit.version)),
    meter(hit.score),
    formatScore(hit.cosine) === score ? null : cosineLine(hit),
    element("p", { class: "id" }, idText(hit.id)),
    hit.label === null ? null : element("p", { class: "label" }, isolated(hit.label)),
    metadata(hit.metadata),
    more,
  );
  const rank = element("span", { class: "rank", "aria-hidden": "true" }, String(position + 1));
  return setVersionColour(element("li", { class: "hit" }, rank, image, body), hit.version);
}

function cosineLine(hit) {
  const title = `The cosine in version ${hit.version}'s space. The score above makes all versions comparable.`;
  return element("p", { class: "hint", title }, `cosine ${formatScore(hit.cosine)}`);
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

// Thumbnails are fetched with the token, which an img element cannot send, and only when they are scrolled into view.

let loading = new AbortController();
const objectUrls = new Set();
const idOfFrame = new WeakMap();
const observer = new IntersectionObserver(
  (entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      observer.unobserve(target);
      loadInto(target, idOfFrame.get(target));
    }
  },
  { rootMargin: "300px" },
);

/** Stop loading and free all images shown so far. */
export function clearImages() {
  loading.abort();
  loading = new AbortController();
  observer.disconnect();
  for (const url of objectUrls) URL.revokeObjectURL(url);
  objectUrls.clear();
}

/** A frame with the item's thumbnail, or with a note if the gallery has no image of the item. */
export function picture({ id, image }) {
  if (!image) return element("div", { class: "picture none" }, element("span", {}, "no image stored"));
  const frame = element("div", { class: "picture" });
  idOfFrame.set(frame, id);
  observer.observe(frame);
  return frame;
}

async function loadInto(frame, id) {
  const { signal } = loading;
  try {
    const blob = await loadThumbnail(id, THUMBNAIL_SIZE, signal);
    if (!signal.aborted) frame.append(imageOf(blob));
  } catch {
    if (signal.aborted) return;
    frame.classList.add("none");
    frame.append(element("span", {}, "image not available"));
  }
}

/** A blob as an image. Small images are enlarged without smoothing. */
export function imageOf(blob) {
  const url = URL.createObjectURL(blob);
  objectUrls.add(url);
  const image = element("img", { alt: "", src: url });
  image.addEventListener("load", () => image.classList.toggle("small", image.naturalWidth < PIXELATED_BELOW));
  image.addEventListener("error", () => image.remove()); // the service reads formats that the browser does not
  return image;
}

/** Arrow keys, Home and End move between the hits. Only the last focused hit is in the tab order. */
export function enableArrowKeys() {
  const list = byId("hits");
  const buttons = () => [...list.querySelectorAll(".more")];
  list.addEventListener("keydown", (event) => {
    const all = buttons();
    const current = all.indexOf(document.activeElement);
    if (current < 0 || event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key === "Escape") {
      byId("file").focus();
      return;
    }
    const next = destination(event.key, current, all);
    if (next === null) return;
    event.preventDefault();
    all[Math.min(all.length - 1, Math.max(0, next))].focus();
  });
  list.addEventListener("focusin", (event) => {
    if (!event.target.classList.contains("more")) return;
    for (const one of buttons()) one.tabIndex = one === event.target ? 0 : -1;
  });
}

function destination(key, current, all) {
  const cards = all.map((one) => one.closest(".hit"));
  const secondRow = cards.findIndex((one) => one.offsetTop > cards[0].offsetTop);
  const columns = secondRow < 0 ? all.length : secondRow;
  switch (key) {
    case "ArrowRight":
      return current + 1;
    case "ArrowLeft":
      return current - 1;
    case "ArrowDown":
      return current + columns < all.length ? current + columns : null;
    case "ArrowUp":
      return current - columns >= 0 ? current - columns : null;
    case "Home":
      return 0;
    case "End":
      return all.length - 1;
    default:
      return null;
  }
}
