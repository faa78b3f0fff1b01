// The token: in this tab's session storage and nowhere else.

import { byId } from "./dom.js";

const KEY = "holdfast.token";

export const token = () => sessionStorage.getItem(KEY);

export function forgetToken() {
  sessionStorage.removeItem(KEY);
}

/** Ask for a token. Resolves to whether one was given; `reason` is what the server said of the one before. */
export function askForToken(reason) {
  const dialog = byId("token-dialog");
  const field = byId("token");
  byId("token-problem").textContent = token() ? reason : "";
  field.value = "";
  if (!dialog.open) dialog.showModal();
  field.focus();
  return new Promise((resolve) => {
    const done = (given) => {
      listening.abort();
      dialog.close();
      resolve(given);
    };
    const listening = new AbortController();
    const { signal } = listening;
    byId("token-form").addEventListener(
      "submit",
      (event) => {
        event.preventDefault();
        sessionStorage.setItem(KEY, field.value.trim());
        field.value = "";
        done(true);
      },
      { signal },
    );
    byId("token-cancel").addEventListener("click", () => done(false), { signal });
    dialog.addEventListener("cancel", () => done(false), { signal });
  });
}
