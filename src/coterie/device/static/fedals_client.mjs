// A round of FedALS on the device, without network and without storage. In plain messages it sends
// the items and the row of its user, so that there is nothing left to infer.

import { solveRow, updateSizes } from "./fedals.mjs";
import { quantise } from "./fixed_point.mjs";
import { readMessage, readModel, readUpdate, writeUpdate } from "./messages.mjs";
import { bestItems } from "./recommend.mjs";

const READER = { name: "reading", uses: "the items in the message: no attack is needed" };

export const FEDALS_CLIENT = {
  heading: "You see your likes before they leave this browser",
  hasRate: false,
  /** A row is solved anew from the item table whenever it is needed. */
  needsRow: false,
  reveals:
    "The server can read your likes in this message, all except private ones, and a row of numbers " +
    "that sums up your taste. Private likes are left out of it. Only send it to a server that may " +
    "know what you like.",
  updateSizes,
  train,
  recommend,
};

/** Likes that are not private; a private one enters neither the items nor the row. */
export function disclosed({ positives, hidden }) {
  return positives.filter((_, at) => !hidden[at]);
}

function train(terms, device, messageBytes) {
  const { settings } = terms;
  const size = settings.embedding_size;
  const message = readMessage(messageBytes, device.user, terms.items, size, { hasBias: false });
  const items = disclosed(device.history);
  const row = solveRow(settings, message.itemRows, items);
  const made = { items, itemRows: new Int32Array(0), dense: Int32Array.from(row, quantise) };
  const bytes = writeUpdate(message.round, message.user, 1, made, updateSizes(settings));
  const update = readUpdate(bytes, terms.items, updateSizes(settings));
  const evidence = withItems(device.evidence ?? { rounds: 0, items: [] }, update.items);
  const { positives } = device.history;
  return {
    bytes,
    user: message.user,
    round: message.round,
    state: null,
    update,
    evidence,
    alone: [claim(update.items, positives)],
    together: [claim(evidence.items, positives)],
  };
}

/** All items that were sent so far. */
function withItems(evidence, items) {
  if (!items.length) return evidence;
  return { rounds: evidence.rounds + 1, items: [...new Set([...evidence.items, ...items])] };
}

function claim(items, positives) {
  const liked = new Set(positives);
  const found = Array.from(items).filter((item) => liked.has(item));
  return { ...READER, claims: items.length, hits: found.length, liked: positives.length, found };
}

/** The best items for all likes, private ones too: nothing is sent. */
function recommend(terms, device, model, n) {
  const table = readModel(model, terms.items, terms.settings.embedding_size);
  const row = solveRow(terms.settings, table.itemRows, device.history.positives);
  const best = bestItems(row, table.itemRows, table.itemBias, device.history.seen, n);
  return { best, round: table.round };
}
