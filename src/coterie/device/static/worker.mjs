// The Web Worker that trains and recommends. It makes no requests.

import { clientOf } from "./clients.mjs";

const TASKS = {
  train: ({ terms, device, message }) => clientOf(terms).train(terms, device, message),

  recommend: ({ terms, device, model, n }) => clientOf(terms).recommend(terms, device, model, n),
};

addEventListener("message", ({ data: { number, task, question } }) => {
  try {
    postMessage({ number, answer: TASKS[task](question) });
  } catch (error) {
    postMessage({ number, error: error.message });
  }
});
