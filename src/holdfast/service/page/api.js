// The service, called from the page it serves.

import { token } from "./token.js";

const PATIENCE_MS = 90_000;

/** The service answered, and said no. */
export class Refused extends Error {
  constructor(status, reason) {
    super(reason);
    this.status = status;
  }
}

/** Nobody answered. */
export class Unreachable extends Error {}

export const gallery = () => call("/v1/gallery").then(json);
export const versions = () => call("/v1/versions").then(json);
export const alive = () => call("/v1/health").then(json);
export const item = (id, signal) => call(`/v1/item?${new URLSearchParams({ id })}`, { signal }).then(json);

export function thumbnail(id, size, signal) {
  return call(`/v1/item/thumbnail?${new URLSearchParams({ id, size })}`, { signal }).then((answer) => answer.blob());
}

export function searchById(id, { k, filter, exact }, signal) {
  const body = JSON.stringify({ id, k, filter, exact });
  return call("/v1/search/id", { method: "POST", body, type: "application/json", signal }).then(json);
}

export function searchByImage(file, { k, filter, exact }, signal) {
  const query = new URLSearchParams({ k, exact, ...(filter ? { filter: JSON.stringify(filter) } : {}) });
  // The service looks into the file; what the browser makes of its name does not matter.
  const sent = { method: "POST", body: file, type: "application/octet-stream", signal };
  return call(`/v1/search/image?${query}`, sent).then(json);
}

async function call(path, { type, signal, ...options } = {}) {
  const headers = {};
  if (type) headers["Content-Type"] = type;
  if (token()) headers.Authorization = `Bearer ${token()}`;
  const limit = AbortSignal.timeout(PATIENCE_MS);
  let answer;
  try {
    answer = await fetch(path, { ...options, headers, signal: signal ? AbortSignal.any([signal, limit]) : limit });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Unreachable("The service does not answer.", { cause: error });
  }
  if (answer.ok) return answer;
  throw new Refused(answer.status, await reasonOf(answer));
}

const json = (answer) => answer.json();

async function reasonOf(answer) {
  try {
    return String((await answer.json()).error.reason);
  } catch {
    return `${answer.status} ${answer.statusText}`; // a proxy's answer, not the service's
  }
}
