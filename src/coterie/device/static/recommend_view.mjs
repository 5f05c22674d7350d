// Recommendations, computed here from the downloaded item table while the network is silent.

import { byId, make, plural, size } from "./dom.mjs";
import { requestsDuring } from "./network.mjs";

const LENGTH = 10;

export class RecommendView {
  /**
   * @param {{id: string, title: string}[]} items
   * @param {import("./network.mjs").Network} network
   * @param {Object} calls
   * @param {() => Promise<Uint8Array | null>} calls.stored the item table in this browser
   * @param {() => Promise<Uint8Array>} calls.fetch the newest item table of the gateway
   * @param {(model: Uint8Array, n: number) => Promise<Object>} calls.recommend
   */
  constructor(items, network, calls) {
    this.items = items;
    this.network = network;
    this.calls = calls;
    byId("get-model").addEventListener("click", () => this.fetchTable());
    byId("recommend").addEventListener("click", () => this.#recommend());
  }

  /** Whether the device has what it needs: a row of its own, and an item table. */
  async show(isJoined, hasRow) {
    const model = await this.calls.stored();
    byId("get-model").disabled = !isJoined;
    byId("recommend").disabled = !model || !hasRow;
    byId("model-note").textContent = noteOn(model, hasRow);
  }

  async fetchTable() {
    const note = byId("model-note");
    try {
      const model = await this.calls.fetch();
      note.textContent = `The item table is in this browser (${size(model.length)}).`;
    } catch (error) {
      note.textContent = error.message;
    }
  }

  async #recommend() {
    const model = await this.calls.stored();
    try {
      const began = performance.now();
      const { result, requests } = await requestsDuring(this.network, () =>
        this.calls.recommend(model, LENGTH),
      );
      const took = (performance.now() - began).toFixed(0);
      byId("silence").textContent =
        `${plural(requests, "request")} while this list was computed, in ${took} ms. ` +
        `The item table has ${plural(result.round, "round")} of training.`;
      byId("best").replaceChildren(
        ...result.best.map(({ item }) => make("li", { textContent: this.items[item].title })),
      );
    } catch (error) {
      byId("silence").textContent = error.message;
    }
  }
}

function noteOn(model, hasRow) {
  if (!hasRow)
    return "Take part in a round first: it makes the row of numbers that stands for you, and stays here.";
  if (!model) return "Get the item table first. It is the same for all users.";
  return `The item table is in this browser (${size(model.length)}).`;
}
