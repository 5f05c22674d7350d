// A round of FPL on the device, without network and without storage: from the server's bytes to the
// update's bytes, and what these tell an attacker.

import { claims, score, withRound, noEvidence } from "./attackers.mjs";
import { clientUpdate, startRow, updateSizes } from "./fpl.mjs";
import { readMessage, readModel, readUpdate, writeUpdate } from "./messages.mjs";
import { commit, currentRow, initialState, withPending } from "./private_state.mjs";
import { bestItems } from "./recommend.mjs";
import { Malformed } from "./wire.mjs";

export const FPL_CLIENT = {
  heading: "Your likes stay in this browser",
  hasRate: true,
  needsRow: true,
  reveals: "",
  updateSizes,
  train,
  recommend,
};

/**
 * What a device has, all of it private.
 * @typedef {Object} Device
 * @property {number | null} user its index; null before the first message
 * @property {bigint} seed of the client's draws
 * @property {import("./fpl.mjs").History} history
 * @property {number} pi
 * @property {import("./private_state.mjs").PrivateState | null} state null before the first round
 * @property {import("./attackers.mjs").Evidence | null} evidence of what was sent so far
 */

/**
 * Train on a message. Nothing is sent here.
 * @returns the update's bytes, the next private state and evidence, and what the bytes tell
 */
function train(terms, device, messageBytes) {
  const { settings } = terms;
  const size = settings.embedding_size;
  const message = readMessage(messageBytes, device.user, terms.items, size);
  const { user } = message;
  const start = startRow(settings, device.seed, user);
  const state = commit(device.state ?? initialState(start), message.accepted, start);
  if (state === null)
    throw new Malformed(
      `the server's last accepted update has tag ${message.accepted}, of which this device has no ` +
        "row; expected the tag of an update that it sent. Leave the federation and join again.",
    );
  const row = currentRow(state);
  const made = clientUpdate(settings, message, device.history, row, device.pi, device.seed, user);
  const bytes = writeUpdate(message.round, user, settings.triples, made, updateSizes(settings));
  return {
    bytes,
    user,
    round: message.round,
    state: withPending(state, message.round, message.exchange, made.row),
    ...inspect(terms, device, bytes, message.itemRows),
  };
}

/** What an update's bytes tell, alone and together with what was sent before. */
export function inspect(terms, device, bytes, sentRows) {
  const { settings, items: nItems } = terms;
  const update = readUpdate(bytes, nItems, updateSizes(settings));
  const server = {
    nItems,
    regPositive: settings.reg_positive,
    regNegative: settings.reg_negative,
  };
  const observation = { ...update, sent: sentRows };
  const nothing = noEvidence(settings.embedding_size);
  const alone = withRound(nothing, server, observation);
  const evidence = withRound(device.evidence ?? nothing, server, observation);
  const { positives } = device.history;
  const scored = (from) =>
    claims(from, server).map((claim) => ({
      name: claim.name,
      uses: claim.uses,
      ...score(claim, positives, nItems),
    }));
  return { update, evidence, alone: scored(alone), together: scored(evidence) };
}

/** The best items for the newest row of the user. */
function recommend(terms, { history, state }, model, n) {
  const table = readModel(model, terms.items, terms.settings.embedding_size);
  const row = state.pending?.row ?? currentRow(state);
  const best = bestItems(row, table.itemRows, table.itemBias, history.seen, n);
  return { best, round: table.round };
}
