// The page: which view is shown, what is known of the gallery, and what happens when the service says no.

import { Refused, Unreachable, alive, gallery as loadGallery } from "./api.js";
import { prepareAsking } from "./ask.js";
import { offerControls, prepareControls } from "./controls.js";
import { button, byId } from "./dom.js";
import * as figures from "./figures.js";
import * as messages from "./messages.js";
import { route } from "./route.js";
import { cancelSearch, search } from "./search.js";
import { askForToken, forgetToken, token } from "./token.js";
import { drawVersions, versionsLate } from "./versions.js";
import { prepareWalking } from "./walk.js";
import { watchVersions } from "./watch.js";

const RETRY_MS = 2000;

let gallery = null;
let reviving = false;

const look = watchVersions({
  near: () => route().view === "versions",
  seen(state) {
    drawVersions(state);
    const changed = state.items !== gallery?.items || state.versions.at(-1).number !== gallery?.newest;
    if (gallery && changed) refresh().catch(trouble);
  },
  failed(error) {
    versionsLate(error);
    trouble(error);
  },
});

async function start() {
  messages.showLoading();
  try {
    await refresh();
  } catch (error) {
    const retry = button("Try again", start);
    const title = error instanceof Unreachable ? "Not answered" : "The gallery cannot be read";
    messages.showProblem(title, error.message, retry);
    trouble(error);
    return;
  }
  byId("forget-token").hidden = token() === null;
  look();
  show();
}

async function refresh() {
  gallery = await loadGallery();
  document.title = `${gallery.name} · Holdfast`;
  byId("gallery-name").textContent = gallery.name;
  byId("gallery-count").textContent = figures.items(gallery.items);
  offerControls(gallery);
}

function show() {
  const { view, question } = route();
  for (const name of ["search", "versions"]) {
    byId(`${name}-view`).hidden = name !== view;
    if (name === view) byId(`to-${name}`).setAttribute("aria-current", "page");
    else byId(`to-${name}`).removeAttribute("aria-current");
  }
  if (gallery === null) return;
  if (view === "versions") look();
  else search(question, gallery, trouble);
}

/** Errors that concern the whole page: no token, nobody there. */
async function trouble(error) {
  if (error instanceof Refused && error.status === 401) {
    if (byId("token-dialog").open) return;
    if (await askForToken(error.message)) start();
    else
      messages.showProblem(
        "A token is needed",
        error.message,
        button("Enter a token", () => trouble(error)),
      );
  } else if (error instanceof Unreachable && !reviving) {
    reviving = true;
    byId("offline").hidden = false;
    while (
      !(await alive().then(
        () => true,
        () => false,
      ))
    )
      await new Promise((done) => setTimeout(done, RETRY_MS));
    byId("offline").hidden = true;
    reviving = false;
    start();
  }
}

addEventListener("hashchange", show);
addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  if (cancelSearch()) messages.showIdle();
  else if (event.target === byId("id")) byId("id").value = "";
});
byId("skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address belongs to the views
  byId("main").focus();
});
byId("forget-token").addEventListener("click", () => {
  forgetToken();
  location.reload();
});
prepareAsking((reason) => messages.showProblem("Not searched", reason));
prepareControls(() => {
  if (gallery && route().view === "search") search(route().question, gallery, trouble);
});
prepareWalking();
start();
