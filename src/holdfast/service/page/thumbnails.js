// Pictures of items. They are fetched with the token, which an img element cannot send, and only when in sight.

import { thumbnail } from "./api.js";
import { element } from "./dom.js";

const SIZE = 320;
const SMALL = 96;

let pages = new AbortController();
const addresses = new Set();

/** Forget all pictures shown so far. */
export function clearThumbnails() {
  pages.abort();
  pages = new AbortController();
  watcher.disconnect();
  for (const address of addresses) URL.revokeObjectURL(address);
  addresses.clear();
}

const waiting = new WeakMap();
const watcher = new IntersectionObserver(
  (entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      watcher.unobserve(target);
      load(target, waiting.get(target));
    }
  },
  { rootMargin: "300px" },
);

/** A frame with the item's picture; where there is none, it says so. */
export function picture({ id, image }) {
  if (!image) return element("div", { class: "picture none" }, element("span", {}, "no image kept"));
  const frame = element("div", { class: "picture" });
  waiting.set(frame, id);
  watcher.observe(frame);
  return frame;
}

async function load(frame, id) {
  const { signal } = pages;
  try {
    const blob = await thumbnail(id, SIZE, signal);
    if (!signal.aborted) frame.append(shown(blob));
  } catch {
    if (signal.aborted) return;
    frame.classList.add("none");
    frame.append(element("span", {}, "image not to be had"));
  }
}

/** A blob as an image; small ones keep their pixels when they are enlarged. */
export function shown(blob) {
  const address = URL.createObjectURL(blob);
  addresses.add(address);
  const image = element("img", { alt: "", src: address });
  image.addEventListener("load", () => image.classList.toggle("small", image.naturalWidth < SMALL));
  image.addEventListener("error", () => image.remove()); // the service may read what the browser cannot
  return image;
}
