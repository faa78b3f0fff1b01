// The page: which view is shown, the gallery's name and counts, the token dialog, reconnecting.

import { loadGallery, loadHealth, RequestError, UnreachableError } from "./api.js";
import { button, byId, formatItems, showError, showIdle, showLoading } from "./dom.js";
import { enableArrowKeys } from "./hits.js";
import { cancelSearch, enableOptions, enableQueries, search, showOptions } from "./search.js";
import { forgetToken, route, storeToken, token } from "./state.js";
import { showVersionChoice } from "./version_choice.js";
import { drawVersions, pollVersions, showVersionsError } from "./versions.js";

const RETRY_MS = 2000;

let gallery = null; // the answer of GET /v1/gallery
let reconnecting = false;

const poll = pollVersions({
  isVisible: () => route().view === "versions",
  onState(state) {
    drawVersions(state);
    showVersionChoice(state);
    const changed = state.items !== gallery?.items || state.versions.find((one) => one.newest).number !== gallery?.newest;
    if (gallery && changed) refreshGallery().catch(handleError);
  },
  onError(error) {
    showVersionsError(error);
    handleError(error);
  },
});

async function start() {
  showLoading();
  try {
    await refreshGallery();
  } catch (error) {
    const title = error instanceof UnreachableError ? "No answer" : "The gallery cannot be read";
    showError(title, error.message, button("Try again", start));
    handleError(error);
    return;
  }
  byId("forget-token").hidden = token() === null;
  poll();
  showView();
}

async function refreshGallery() {
  gallery = await loadGallery();
  document.title = `${gallery.name} · Holdfast`;
  byId("gallery-name").textContent = gallery.name;
  byId("gallery-count").textContent = formatItems(gallery.items);
  showOptions(gallery);
}

function showView() {
  const { view, query } = route();
  for (const name of ["search", "versions"]) {
    byId(`${name}-view`).hidden = name !== view;
    if (name === view) byId(`to-${name}`).setAttribute("aria-current", "page");
    else byId(`to-${name}`).removeAttribute("aria-current");
  }
  if (gallery === null) return;
  if (view === "versions") poll();
  else search(query, gallery, handleError);
}

/** Errors that concern the whole page: a missing token, a service that does not answer. */
async function handleError(error) {
  if (error instanceof RequestError && error.status === 401) {
    if (byId("token-dialog").open) return;
    if (await askForToken(error.message)) start();
    else showError("A token is needed", error.message, button("Enter a token", () => handleError(error)));
  } else if (error instanceof UnreachableError && !reconnecting) {
    reconnecting = true;
    byId("offline").hidden = false;
    while (!(await isAlive())) await new Promise((done) => setTimeout(done, RETRY_MS));
    byId("offline").hidden = true;
    reconnecting = false;
    start();
  }
}

const isAlive = () =>
  loadHealth().then(
    () => true,
    () => false,
  );

/** Show the token dialog. Resolves to whether a token was entered. reason: why the service refused the last token. */
function askForToken(reason) {
  const dialog = byId("token-dialog");
  const field = byId("token");
  byId("token-problem").textContent = token() ? reason : "";
  field.value = "";
  if (!dialog.open) dialog.showModal();
  field.focus();
  return new Promise((resolve) => {
    const listeners = new AbortController();
    const { signal } = listeners;
    const close = (entered) => {
      listeners.abort();
      dialog.close();
      resolve(entered);
    };
    const submit = (event) => {
      event.preventDefault();
      storeToken(field.value.trim());
      field.value = "";
      close(true);
    };
    byId("token-form").addEventListener("submit", submit, { signal });
    byId("token-cancel").addEventListener("click", () => close(false), { signal });
    dialog.addEventListener("cancel", () => close(false), { signal });
  });
}

addEventListener("hashchange", showView);
addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  if (cancelSearch()) showIdle();
  else if (event.target === byId("id")) byId("id").value = "";
});
byId("skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address names the view
  byId("main").focus();
});
byId("forget-token").addEventListener("click", () => {
  forgetToken();
  location.reload();
});
enableQueries();
enableOptions(() => {
  if (gallery && route().view === "search") search(route().query, gallery, handleError);
});
enableArrowKeys();
start();
