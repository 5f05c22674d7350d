// The page's end of the Web Worker: a question is a promise of its answer.

export class Trainer {
  #worker = new Worker(new URL("./worker.mjs", import.meta.url), { type: "module" });
  #waiting = new Map();
  #asked = 0;

  constructor() {
    this.#worker.addEventListener("message", ({ data: { number, answer, error } }) => {
      const { resolve, reject } = this.#waiting.get(number);
      this.#waiting.delete(number);
      if (error === undefined) resolve(answer);
      else reject(new Error(error));
    });
    this.#worker.addEventListener("error", (event) => {
      for (const { reject } of this.#waiting.values()) reject(new Error(event.message));
      this.#waiting.clear();
    });
  }

  /** See fpl_client.mjs. The keys of the device stay out of the worker. */
  train(terms, { user, seed, history, pi, state, evidence }, message) {
    const device = { user, seed, history, pi, state, evidence };
    return this.#ask("train", { terms, device, message });
  }

  recommend(terms, { history, state }, model, n) {
    return this.#ask("recommend", { terms, device: { history, state }, model, n });
  }

  #ask(task, question) {
    this.#asked += 1;
    const number = this.#asked;
    return new Promise((resolve, reject) => {
      this.#waiting.set(number, { resolve, reject });
      this.#worker.postMessage({ number, task, question });
    });
  }
}
