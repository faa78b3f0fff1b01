// Calls to the service.

import { token } from "./state.js";

const TIMEOUT_MS = 90_000;

/** The service answered with an error status. */
export class RequestError extends Error {
  constructor(status, reason) {
    super(reason);
    this.status = status;
  }
}

/** The service did not answer. */
export class UnreachableError extends Error {}

export const loadGallery = () => call("/v1/gallery").then(json);
export const loadVersions = () => call("/v1/versions").then(json);
export const loadHealth = () => call("/v1/health").then(json);
export const loadItem = (id, signal) => call(`/v1/item?${new URLSearchParams({ id })}`, { signal }).then(json);

export function loadThumbnail(id, size, signal) {
  return call(`/v1/item/thumbnail?${new URLSearchParams({ id, size })}`, { signal }).then((answer) => answer.blob());
}

export function searchById(id, { k, filter, exact, versions }, signal) {
  const body = JSON.stringify({ id, k, filter, exact, indexed_by: versions });
  return call("/v1/search/id", { method: "POST", body, type: "application/json", signal }).then(json);
}

export function searchByImage(file, { k, filter, exact, versions }, signal) {
  const query = new URLSearchParams({ k, exact, ...(filter ? { filter: JSON.stringify(filter) } : {}) });
  for (const number of versions ?? []) query.append("indexed_by", number);
  // The service detects the image format itself: the type that the browser guesses from the file name is not sent.
  const options = { method: "POST", body: file, type: "application/octet-stream", signal };
  return call(`/v1/search/image?${query}`, options).then(json);
}

async function call(path, { type, signal, ...options } = {}) {
  const headers = {};
  if (type) headers["Content-Type"] = type;
  if (token()) headers.Authorization = `Bearer ${token()}`;
  const timeout = AbortSignal.timeout(TIMEOUT_MS);
  let answer;
  try {
    answer = await fetch(path, { ...options, headers, signal: signal ? AbortSignal.any([signal, timeout]) : timeout });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new UnreachableError("The service does not answer.", { cause: error });
  }
  if (answer.ok) return answer;
  throw new RequestError(answer.status, await reasonOf(answer));
}

const json = (answer) => answer.json();

async function reasonOf(answer) {
  try {
    return String((await answer.json()).error.reason);
  } catch {
    return `${answer.status} ${answer.statusText}`; // an answer of a proxy, not of the service
  }
}
