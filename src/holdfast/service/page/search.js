// The search view: how a query is entered, the number of hits, the filter, the search itself and its results.

import { loadItem, RequestError, searchById, searchByImage, UnreachableError } from "./api.js";
import {
  badge,
  button,
  byId,
  clearMessage,
  element,
  formatCount,
  formatMebibytes,
  idText,
  showEmptyGallery,
  showError,
  showIdle,
  showLoading,
  showNoHits,
} from "./dom.js";
import { card, clearImages, imageOf, picture } from "./hits.js";
import { goToImage, goToItem } from "./state.js";
import { chosenVersions, showShares } from "./version_choice.js";

const PHONE = "(max-width: 56rem)"; // as in views.css
const COMPARISONS = [
  ["is", "is"],
  ["among", "is one of"],
  ["lt", "is below"],
  ["lte", "is at most"],
  ["gte", "is at least"],
  ["gt", "is above"],
];

let running = null; // the AbortController of the search that has not been answered yet
let fields = []; // names that items can be filtered by

/** Stop the running search. Returns whether one was running. */
export function cancelSearch() {
  const wasRunning = running !== null;
  running?.abort();
  running = null;
  return wasRunning;
}

/**
 * Run a query and show its hits.
 * query: see route(); null shows the start message.
 * gallery: the answer of GET /v1/gallery.
 * onError: called with errors of the service after they are shown here.
 */
export async function search(query, gallery, onError) {
  cancelSearch();
  const hadFocus = byId("hits").contains(document.activeElement);
  clearResults();
  clearImages();
  if (query === null) {
    byId("preview").replaceChildren();
    if (gallery.items === 0) showEmptyGallery(gallery.name);
    else showIdle();
    return;
  }
  const options = readOptions();
  if (options === null) return;
  const current = new AbortController();
  running = current;
  byId("hits").setAttribute("aria-busy", "true");
  showLoading();
  try {
    showQuery(query, current.signal);
    const started = performance.now();
    const answer = await send(query, options, gallery, current.signal);
    showResults(answer, options, performance.now() - started, hadFocus);
    if (!hadFocus) scrollToResults();
  } catch (error) {
    if (current.signal.aborted) return;
    if (!(error instanceof RequestError || error instanceof UnreachableError)) throw error;
    const retry = button("Try again", () => search(query, gallery, onError));
    const mayHelp = error instanceof UnreachableError || error.status >= 500;
    const title = error instanceof UnreachableError ? "No answer" : "Search failed";
    showError(title, error.message, ...(mayHelp ? [retry] : []));
    scrollToResults();
    onError(error);
  } finally {
    if (running === current) running = null;
    if (running === null) byId("hits").removeAttribute("aria-busy");
  }
}

function send(query, options, gallery, signal) {
  if (query.kind === "id") return searchById(query.id, options, signal);
  if (query.file.size > gallery.limits.body) {
    // The service would close the connection in the middle of the upload, and the browser would not show its reason.
    const [size, limit] = [query.file.size, gallery.limits.body].map(formatMebibytes);
    throw new RequestError(413, `This file has ${size}; the service takes at most ${limit}.`);
  }
  return searchByImage(query.file, options, signal);
}

/** On a narrow screen the hits are below the query. */
function scrollToResults() {
  if (matchMedia(PHONE).matches) byId("hits").parentElement.scrollIntoView();
}

function clearResults() {
  byId("found-title").textContent = "Hits";
  byId("status").textContent = "";
  byId("hits").replaceChildren();
  showShares(null);
}

async function showQuery(query, signal) {
  const preview = byId("preview");
  if (query.kind === "image") {
    preview.replaceChildren(imageOf(query.file), element("p", {}, idText(query.file.name || "pasted image")));
    return;
  }
  byId("id").value = query.id;
  const item = await loadItem(query.id, signal).catch(() => null); // the search itself shows the error
  if (signal.aborted) return;
  preview.replaceChildren(
    ...(item ? [picture(item), element("p", {}, idText(query.id), " ", badge(item.version))] : []),
  );
}

function showResults({ version, hits }, options, milliseconds, hadFocus) {
  clearMessage();
  if (hits.length === 0) {
    showNoHits(options.filter !== null, options.versions?.[0] ?? null);
    return;
  }
  byId("hits").replaceChildren(...hits.map(card));
  byId("found-title").textContent = `${formatCount(hits.length)} ${hits.length === 1 ? "hit" : "hits"}`;
  const queryVersion = badge(version, `the query was embedded by version ${version}`);
  const among = (options.versions ?? []).flatMap((number) => [", only items of ", badge(number)]);
  byId("status").replaceChildren("query embedded by ", queryVersion, ...among, `, in ${Math.round(milliseconds)} ms`);
  showShares(options.versions === null ? hits : null);
  if (hadFocus) byId("hits").querySelector(".more").focus();
}

// Entering a query: choose a file, drop one, paste one, type an id.

export function enableQueries() {
  const takeImage = (files) => {
    const file = [...(files ?? [])].find((one) => one.type === "" || one.type.startsWith("image/"));
    if (file) goToImage(file);
    else if (files?.length) showError("Search failed", "This file is not an image.");
    return Boolean(file);
  };
  const chooser = byId("file");
  chooser.addEventListener("change", () => {
    takeImage(chooser.files);
    chooser.value = ""; // so that the same file can be chosen again
  });
  byId("by-id").addEventListener("submit", (event) => {
    event.preventDefault();
    const id = byId("id").value;
    if (id) goToItem(id);
  });
  addEventListener("paste", (event) => {
    if (takeImage(event.clipboardData?.files)) event.preventDefault();
  });
  enableDropping(takeImage);
}

function enableDropping(takeImage) {
  const overlay = byId("dropping");
  const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
  let depth = 0; // dragenter and dragleave are sent for every element under the pointer
  addEventListener("dragenter", (event) => {
    if (hasFiles(event)) overlay.hidden = ++depth === 0;
  });
  addEventListener("dragleave", (event) => {
    if (hasFiles(event)) overlay.hidden = --depth <= 0;
  });
  addEventListener("dragover", (event) => {
    if (hasFiles(event)) event.preventDefault();
  });
  addEventListener("drop", (event) => {
    depth = 0;
    overlay.hidden = true;
    if (!hasFiles(event)) return;
    event.preventDefault(); // otherwise the browser opens the file instead of this page
    takeImage(event.dataTransfer.files);
  });
}

// Options: the number of hits, exact search, one version's items, and a filter of rows with a field, a comparison and a value.

/** onChange: called when the user changed an option. */
export function enableOptions(onChange) {
  const form = byId("controls");
  byId("refine").open = !matchMedia(PHONE).matches; // on a phone the hits come first
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    onChange();
  });
  form.addEventListener("change", onChange);
  byId("add-condition").addEventListener("click", addCondition);
}

export function showOptions(gallery) {
  byId("k").max = gallery.limits.k;
  fields = gallery.fields;
  byId("filter").hidden = fields.length === 0;
}

/** The options of a search, or null if one is invalid; the form then shows what is wrong. */
function readOptions() {
  const k = byId("k");
  const problem = byId("filter-problem");
  problem.textContent = "";
  if (!k.checkValidity()) {
    k.reportValidity();
    return null;
  }
  try {
    const versions = chosenVersions();
    return { k: k.valueAsNumber, filter: readFilter(), exact: byId("exact").checked, versions };
  } catch (error) {
    problem.textContent = error.message;
    return null;
  }
}

function addCondition() {
  const label = (name) => ({ "aria-label": name, name });
  const choice = (name, options) =>
    element("select", label(name), ...options.map(([value, text]) => element("option", { value }, text)));
  const names = fields.map((name) => [name, name]);
  const field = choice("Field", names);
  const value = element("input", { ...label("Value"), "aria-describedby": "filter-hint", spellcheck: "false" });
  const row = element("li", {}, field, choice("Comparison", COMPARISONS), value);
  const remove = () => {
    row.remove();
    byId("add-condition").focus();
    byId("controls").dispatchEvent(new Event("change"));
  };
  row.append(button("×", remove, { class: "quiet", "aria-label": "Remove this condition" }));
  byId("conditions").append(row);
  field.focus();
}

/** The filter as the service takes it, or null. Rows without a value are skipped; an invalid one throws an Error. */
function readFilter() {
  const filter = {};
  for (const row of byId("conditions").children) {
    const [field, how, value] = [...row.querySelectorAll("select, input")].map((control) => control.value.trim());
    if (value === "") continue;
    const earlier = filter[field];
    if (how === "is" || how === "among") {
      if (earlier !== undefined) throw new Error(`${field} has two conditions that cannot be combined`);
      const parse = (text) => parseValue(text.trim(), field);
      filter[field] = how === "is" ? parse(value) : value.split(",").map(parse);
      continue;
    }
    const bound = parseValue(value, field);
    if (typeof bound !== "number") throw new Error(`${field}: ${value} is not a number`);
    if (earlier !== undefined && (typeof earlier !== "object" || Array.isArray(earlier) || how in earlier)) {
      throw new Error(`${field} has two conditions that cannot be combined`);
    }
    filter[field] = { ...earlier, [how]: bound };
  }
  return Object.keys(filter).length ? filter : null;
}

function parseValue(text, field) {
  if (/^".*"$/s.test(text)) return text.slice(1, -1);
  if (field === "label") return text;
  if (text === "true" || text === "false") return text === "true";
  if (!/^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(text)) return text;
  const number = Number(text);
  if (Math.abs(number) > Number.MAX_SAFE_INTEGER) throw new Error(`${field}: ${text} is too large a number`);
  return number;
}
