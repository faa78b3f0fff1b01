// What the page shows is in its address, so that the browser's back button walks through the questions asked.
// An image cannot be in an address: it is kept here by number, and gone when the page is loaded again.

const images = new Map();

export function route() {
  const [name, ...rest] = location.hash.slice(1).split("/");
  const value = rest.join("/");
  if (name === "versions") return { view: "versions", question: null };
  if (name === "like" && value) return { view: "search", question: { kind: "id", id: decoded(value) } };
  if (name === "image" && images.has(value)) {
    return { view: "search", question: { kind: "image", file: images.get(value) } };
  }
  return { view: "search", question: null };
}

export function goToItem(id) {
  go(`#like/${encodeURIComponent(id)}`);
}

export function goToImage(file) {
  const number = String(images.size + 1);
  images.set(number, file);
  go(`#image/${number}`);
}

function go(hash) {
  if (location.hash === hash)
    dispatchEvent(new HashChangeEvent("hashchange")); // asked again
  else location.hash = hash;
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
