// What stands in the place of the hits when there are none.

import { byId, element, foreign } from "./dom.js";

function show(kind, title, ...rest) {
  const sign = kind === "idle" ? element("img", { class: "sign", src: "/static/mark.svg", alt: "" }) : null;
  const role = kind === "error" ? "alert" : null;
  const box = element(
    "div",
    { class: `message ${kind}`, role },
    sign,
    element("p", { class: "title" }, title),
    ...rest,
  );
  byId("message").replaceChildren(box);
}

const line = (...parts) => element("p", {}, ...parts);

export function clearMessage() {
  byId("message").replaceChildren();
}

export function showIdle() {
  show(
    "idle",
    "Nothing asked yet",
    line(
      "Drop an image anywhere on this page, paste one, or choose a file. ",
      "The newest model looks at it; items of every version answer.",
    ),
  );
}

export function showEmptyGallery(name) {
  const command = element("code", {}, `holdfast gallery add ${name} pictures/`);
  show(
    "idle",
    "This gallery is empty",
    line("Add items with ", command, " or by ", element("code", {}, "PUT /v1/item"), "."),
  );
}

export function showNoHits(filtered) {
  show(
    "idle",
    "No hits",
    line(
      filtered ? "No other item fits all conditions. Loosen or remove one." : "There is no other item in the gallery.",
    ),
  );
}

export function showLoading() {
  show("loading", "Searching…");
}

export function showProblem(title, reason, ...actions) {
  show("error", title, line(foreign(reason)), actions.length ? element("p", {}, ...actions) : null);
}
