// One question at a time: ask it, show what comes back.

import { Refused, Unreachable, item, searchById, searchByImage } from "./api.js";
import { readControls } from "./controls.js";
import { button, byId, element, foreign } from "./dom.js";
import * as figures from "./figures.js";
import { card } from "./hits.js";
import * as messages from "./messages.js";
import { clearThumbnails, picture, shown } from "./thumbnails.js";
import { badge } from "./tones.js";

let running = null;

/** Stop waiting for an answer; whether there was one to wait for. */
export function cancelSearch() {
  const was = running !== null;
  running?.abort();
  running = null;
  return was;
}

/** gallery: what the service said of itself. trouble: told of errors that are not about this question. */
export async function search(question, gallery, trouble) {
  cancelSearch();
  const walking = byId("hits").contains(document.activeElement);
  clearAnswer();
  clearThumbnails();
  if (question === null) {
    byId("preview").replaceChildren();
    if (gallery.items === 0) messages.showEmptyGallery(gallery.name);
    else messages.showIdle();
    return;
  }
  const wanted = readControls();
  if (wanted === null) return;
  const mine = new AbortController();
  running = mine;
  byId("hits").setAttribute("aria-busy", "true");
  messages.showLoading();
  try {
    showQuestion(question, mine.signal);
    const started = performance.now();
    const answer = await put(question, wanted, gallery, mine.signal);
    showAnswer(answer, wanted, performance.now() - started, walking);
    if (!walking) bringIntoSight();
  } catch (error) {
    if (mine.signal.aborted) return;
    if (!(error instanceof Refused || error instanceof Unreachable)) throw error;
    const retry = button("Try again", () => search(question, gallery, trouble));
    const hopeful = error instanceof Unreachable || error.status >= 500;
    const title = error instanceof Unreachable ? "Not answered" : "Not searched";
    messages.showProblem(title, error.message, ...(hopeful ? [retry] : []));
    bringIntoSight();
    trouble(error);
  } finally {
    if (running === mine) running = null;
    if (running === null) byId("hits").removeAttribute("aria-busy");
  }
}

function put(question, wanted, gallery, signal) {
  if (question.kind === "id") return searchById(question.id, wanted, signal);
  if (question.file.size > gallery.limits.body) {
    // Sent all the same, it would be cut off, and the browser could not tell why.
    const [size, most] = [question.file.size, gallery.limits.body].map(figures.mebibytes);
    throw new Refused(413, `This file has ${size}; the service takes ${most}.`);
  }
  return searchByImage(question.file, wanted, signal);
}

/** Where the hits stand below what was asked, not beside it. */
function bringIntoSight() {
  if (matchMedia("(max-width: 56rem)").matches) byId("hits").parentElement.scrollIntoView();
}

function clearAnswer() {
  byId("found-title").textContent = "Hits";
  byId("status").textContent = "";
  byId("hits").replaceChildren();
}

async function showQuestion(question, signal) {
  if (question.kind === "image") {
    byId("preview").replaceChildren(
      shown(question.file),
      element("p", {}, foreign(question.file.name || "pasted image")),
    );
    return;
  }
  byId("id").value = question.id;
  const found = await item(question.id, signal).catch(() => null); // the search itself says why
  if (signal.aborted) return;
  const shownItem = found ? [picture(found), element("p", {}, foreign(question.id), " ", badge(found.version))] : [];
  byId("preview").replaceChildren(...shownItem);
}

function showAnswer({ version, hits }, wanted, milliseconds, walking) {
  messages.clearMessage();
  if (hits.length === 0) {
    messages.showNoHits(wanted.filter !== null);
    return;
  }
  byId("hits").replaceChildren(...hits.map(card));
  const mix = new Map();
  for (const hit of hits) mix.set(hit.version, (mix.get(hit.version) ?? 0) + 1);
  const pair = (number) => element("span", { class: "pair" }, badge(number), ` × ${mix.get(number)}`);
  const parts = [...mix.keys()].sort((a, b) => b - a).flatMap((number) => [" ", pair(number)]);
  byId("found-title").textContent = `${figures.count(hits.length)} ${hits.length === 1 ? "hit" : "hits"}`;
  const asking = badge(version, `the question was embedded by version ${version}`);
  byId("status").replaceChildren(
    "asked with ",
    asking,
    ", answered by",
    ...parts,
    ` in ${Math.round(milliseconds)} ms`,
  );
  if (walking) byId("hits").querySelector(".more").focus();
}
