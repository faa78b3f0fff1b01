// Ways to ask: choose a file, drop one, paste one, type an id.

import { byId } from "./dom.js";
import { goToImage, goToItem } from "./route.js";

export function prepareAsking(refuse) {
  const take = (files) => {
    const file = [...(files ?? [])].find((one) => one.type === "" || one.type.startsWith("image/"));
    if (file) goToImage(file);
    else if (files?.length) refuse("That is not an image.");
    return Boolean(file);
  };
  const chooser = byId("file");
  chooser.addEventListener("change", () => {
    take(chooser.files);
    chooser.value = ""; // so that the same file can be chosen again
  });
  byId("by-id").addEventListener("submit", (event) => {
    event.preventDefault();
    const id = byId("id").value;
    if (id) goToItem(id);
  });
  addEventListener("paste", (event) => {
    if (take(event.clipboardData?.files)) event.preventDefault();
  });
  prepareDropping(take);
}

function prepareDropping(take) {
  const sign = byId("dropping");
  const carriesFiles = (event) => event.dataTransfer?.types.includes("Files");
  let depth = 0; // dragenter and dragleave come for every element on the way
  addEventListener("dragenter", (event) => {
    if (carriesFiles(event)) sign.hidden = ++depth === 0;
  });
  addEventListener("dragleave", (event) => {
    if (carriesFiles(event)) sign.hidden = --depth <= 0;
  });
  addEventListener("dragover", (event) => {
    if (carriesFiles(event)) event.preventDefault();
  });
  addEventListener("drop", (event) => {
    depth = 0;
    sign.hidden = true;
    if (!carriesFiles(event)) return;
    event.preventDefault(); // the browser would leave this page and open the file
    take(event.dataTransfer.files);
  });
}
