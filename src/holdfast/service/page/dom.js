// Elements, formatted numbers, version badges and messages.
// Text from the server becomes a text node or an attribute's value, never markup.

export const byId = (id) => document.getElementById(id);

export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/** A reason of the service as a sentence: it begins with a capital letter and ends with a full stop. */
export function sentence(reason) {
  const text = String(reason).trim();
  if (text === "") return "No reason was given.";
  const end = /[.!?…]$/.test(text) ? "" : ".";
  return text[0].toUpperCase() + text.slice(1) + end;
}

/** An id such as a path: lines break after its separators. All of it is in the title. */
export function idText(id) {
  const text = String(id);
  const made = element("bdi", { title: text });
  for (const part of text.split(/(?<=[/\\_\-. ])/)) made.append(part, element("wbr"));
  return made;
}

/** Text from outside. It may contain characters that change the writing direction: bdi limits them to this element. */
export const isolated = (text) => element("bdi", {}, String(text));

/** A list of names and values. A row is [name, value, title], the title being optional. */
export function definitions(rows) {
  const made = rows.map(([name, value, title = null]) =>
    element("div", { title }, element("dt", {}, isolated(name)), element("dd", {}, isolated(value))),
  );
  return element("dl", {}, ...made);
}

export function button(text, action, attributes = {}) {
  const made = element("button", { type: "button", ...attributes }, text);
  made.addEventListener("click", action);
  return made;
}

/** A bar filled from the left; share is from 0 to 1. */
export function meter(share) {
  const made = element("div", { class: "meter" }, element("span"));
  made.firstChild.style.width = `${100 * Math.min(1, Math.max(0, share))}%`;
  return made;
}

// Numbers and dates. The service sends null for a number that could not be measured.

const whole = new Intl.NumberFormat("en");
const oneDecimal = { minimumFractionDigits: 1, maximumFractionDigits: 1 };
const decimal = new Intl.NumberFormat("en", oneDecimal);
const signed = new Intl.NumberFormat("en", { ...oneDecimal, signDisplay: "exceptZero" });
const day = new Intl.DateTimeFormat(undefined, { dateStyle: "medium" });
const minute = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

export const formatCount = (number) => whole.format(number);
export const formatItems = (number) => `${whole.format(number)} ${number === 1 ? "item" : "items"}`;
export const formatScore = (score) => score.toFixed(3);
export const formatRatio = (ratio) => (ratio === null || ratio === undefined ? "–" : ratio.toFixed(2));
export const formatPercent = (share) => (share === null ? "–" : `${decimal.format(100 * share)} %`);
export const formatPoints = (gain) => (gain === null ? "–" : signed.format(100 * gain).replace("-", "−"));
export const formatMebibytes = (bytes) => `${decimal.format(bytes / 1048576)} MiB`;
export const formatDate = (text) => formatMoment(text, day);
export const formatTime = (text) => formatMoment(text, minute);

function formatMoment(text, format) {
  const moment = new Date(text);
  return Number.isNaN(moment.getTime()) ? String(text) : format.format(moment);
}

export function formatDuration(seconds) {
  if (seconds < 90) return `${Math.max(1, Math.round(seconds))} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return `${decimal.format(seconds / 3600)} h`;
}

// A version has the same colour everywhere, and its number is always beside the colour.

const HUES = [78, 165, 232, 300, 25, 125, 200, 265];

export function setVersionColour(target, version) {
  target.style.setProperty("--hue", HUES[(version + HUES.length - 1) % HUES.length]);
  return target;
}

export function badge(version, title = `embedded by version ${version}`) {
  const hidden = element("span", { class: "hidden" }, "version ");
  return setVersionColour(element("span", { class: "badge", title }, hidden, `v${version}`), version);
}

// Messages that are shown in place of the hits.

function showMessage(kind, title, ...rest) {
  const sign = kind === "idle" ? element("img", { class: "sign", src: "/static/mark.svg", alt: "" }) : null;
  const role = kind === "error" ? "alert" : null;
  const head = element("p", { class: "title" }, title);
  byId("message").replaceChildren(element("div", { class: `message ${kind}`, role }, sign, head, ...rest));
}

export function clearMessage() {
  byId("message").replaceChildren();
}

export function showIdle() {
  const text =
    "Drop an image anywhere on this page, paste one, or choose a file. " +
    "The newest model embeds it; items of every version are searched.";
  showMessage("idle", "No search yet", element("p", {}, text));
}

export function showEmptyGallery(name) {
  const command = element("code", {}, `holdfast gallery add ${name} pictures/`);
  const request = element("code", {}, "PUT /v1/item");
  const line = element("p", {}, "Add items with ", command, " or ", request, ".");
  showMessage("idle", "This gallery is empty", line);
}

/** filtered: whether the search had conditions. version: the version that was searched; null for all. */
export function showNoHits(filtered, version) {
  const none = `There is no other item ${version === null ? "in the gallery" : `of version ${version}`}.`;
  const text = filtered ? "No other item matches all conditions. Change or remove one." : none;
  showMessage("idle", "No hits", element("p", {}, text));
}

export function showLoading() {
  showMessage("loading", "Searching…");
}

export function showError(title, reason, ...actions) {
  const buttons = actions.length ? element("p", {}, ...actions) : null;
  showMessage("error", title, element("p", {}, isolated(sentence(reason))), buttons);
}
