// Versions change while one looks: a model is registered, a backfill moves items. Ask again and again, quickly only
// while somebody looks at them.

import { versions } from "./api.js";

const NEAR_MS = 2000;
const FAR_MS = 20_000;

/** near: whether somebody is looking. seen: told every answer. failed: told why there is none. Returns "look now". */
export function watchVersions({ near, seen, failed }) {
  let timer = null;
  let looks = 0;

  async function look() {
    clearTimeout(timer);
    const mine = ++looks;
    try {
      const state = await versions();
      if (mine === looks) seen(state);
    } catch (error) {
      if (mine === looks) failed(error);
    }
    if (mine === looks) timer = setTimeout(later, near() ? NEAR_MS : FAR_MS);
  }

  function later() {
    if (!document.hidden) look();
  }

  document.addEventListener("visibilitychange", later);
  return look;
}
