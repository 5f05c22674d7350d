// Every request of the page goes through here and is counted, so that the page can show silence.

export class Network {
  requests = 0;
  open = 0;
  sentBytes = 0;
  receivedBytes = 0;
  #listeners = [];

  /** Call `listener` after every change. */
  onChange(listener) {
    this.#listeners.push(listener);
  }

  /** Fetch from the page's own origin. @returns {{status, headers, bytes: Uint8Array}} */
  async fetch(path, options = {}) {
    this.requests += 1;
    this.open += 1;
    this.sentBytes += options.body?.length ?? 0;
    this.#tell();
    try {
      const response = await fetch(path, { cache: "no-store", redirect: "error", ...options });
      const bytes = new Uint8Array(await response.arrayBuffer());
      this.receivedBytes += bytes.length;
      return { status: response.status, headers: response.headers, bytes };
    } finally {
      this.open -= 1;
      this.#tell();
    }
  }

  #tell() {
    for (const listener of this.#listeners) listener(this);
  }
}

/**
 * Do some work and count the requests meanwhile: those that began here, and those that the browser
 * reports as done, whoever made them.
 * @returns {{result: *, requests: number}}
 */
export async function requestsDuring(network, work) {
  const before = network.requests;
  performance.clearResourceTimings();
  const result = await work();
  const reported = performance.getEntriesByType("resource").length;
  return { result, requests: Math.max(network.requests - before, reported) };
}
