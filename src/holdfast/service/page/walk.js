// Arrow keys across the hits. One of them is in the tab order: the one last walked to.

import { byId } from "./dom.js";

export function prepareWalking() {
  const list = byId("hits");
  const stops = () => [...list.querySelectorAll(".more")];
  list.addEventListener("keydown", (event) => {
    const all = stops();
    const here = all.indexOf(document.activeElement);
    if (here < 0 || event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key === "Escape") {
      byId("file").focus();
      return;
    }
    const next = destination(event.key, here, all);
    if (next === null) return;
    event.preventDefault();
    all[Math.min(all.length - 1, Math.max(0, next))].focus();
  });
  list.addEventListener("focusin", (event) => {
    if (!event.target.classList.contains("more")) return;
    for (const stop of stops()) stop.tabIndex = stop === event.target ? 0 : -1;
  });
}

function destination(key, here, all) {
  const cards = all.map((stop) => stop.closest(".hit"));
  const later = cards.findIndex((card) => card.offsetTop > cards[0].offsetTop);
  const columns = later < 0 ? all.length : later;
  switch (key) {
    case "ArrowRight":
      return here + 1;
    case "ArrowLeft":
      return here - 1;
    case "ArrowDown":
      return here + columns < all.length ? here + columns : null;
    case "ArrowUp":
      return here - columns >= 0 ? here - columns : null;
    case "Home":
      return 0;
    case "End":
      return all.length - 1;
    default:
      return null;
  }
}
