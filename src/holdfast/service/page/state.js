// The page's state: the token in this tab's session storage, the view and the query in the address.
// The browser's back button therefore steps through earlier queries. An image does not fit into an address: images are
// kept here by number until the page is loaded again.

const TOKEN_KEY = "holdfast.token";
const images = new Map();

export const token = () => sessionStorage.getItem(TOKEN_KEY);
export const storeToken = (given) => sessionStorage.setItem(TOKEN_KEY, given);
export const forgetToken = () => sessionStorage.removeItem(TOKEN_KEY);

/** The view and the query that the address names; the query is null if there is none. */
export function route() {
  const [name, ...rest] = location.hash.slice(1).split("/");
  const value = rest.join("/");
  if (name === "versions") return { view: "versions", query: null };
  if (name === "like" && value) return { view: "search", query: { kind: "id", id: decoded(value) } };
  if (name === "image" && images.has(value)) {
    return { view: "search", query: { kind: "image", file: images.get(value) } };
  }
  return { view: "search", query: null };
}

export function goToItem(id) {
  goTo(`#like/${encodeURIComponent(id)}`);
}

export function goToImage(file) {
  const number = String(images.size + 1);
  images.set(number, file);
  goTo(`#image/${number}`);
}

function goTo(hash) {
  if (location.hash === hash)
    dispatchEvent(new HashChangeEvent("hashchange")); // the same query again
  else location.hash = hash;
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
