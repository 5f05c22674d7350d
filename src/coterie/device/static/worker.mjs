// The Web Worker that trains and recommends. It makes no requests.

import { readModel } from "./messages.mjs";
import { bestItems } from "./recommend.mjs";
import { newestRow, train } from "./round.mjs";

const TASKS = {
  train: ({ terms, device, message }) => train(terms, device, message),

  recommend({ terms, device, model, n }) {
    const table = readModel(model, terms.items, terms.settings.embedding_size);
    const row = newestRow(device.state);
    const best = bestItems(row, table.itemRows, table.itemBias, device.history.seen, n);
    return { best, round: table.round };
  },
};

addEventListener("message", ({ data: { number, task, question } }) => {
  try {
    postMessage({ number, answer: TASKS[task](question) });
  } catch (error) {
    postMessage({ number, error: error.message });
  }
});
