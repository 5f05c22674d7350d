// The clients that this page has, by algorithm.

import { FEDALS_CLIENT } from "./fedals_client.mjs";
import { FPL_CLIENT } from "./fpl_client.mjs";

/**
 * @typedef {Object} AlgorithmClient
 * @property {string} heading of the page
 * @property {boolean} hasRate whether users choose a disclosure rate
 * @property {boolean} needsRow whether recommendations need a row that rounds have trained
 * @property {string} reveals what everybody should know before the first message; may be empty
 * @property {(settings) => {itemRow: number, dense: number}} updateSizes the widths of an update
 * @property {(terms, device, messageBytes: Uint8Array) => Object} train see fpl_client.mjs
 * @property {(terms, device, model: Uint8Array, n: number) => Object} recommend
 */

/** @type {Object<string, AlgorithmClient>} */
const CLIENTS = { pfpl: FPL_CLIENT, "pfpl+": FPL_CLIENT, fedals: FEDALS_CLIENT };

export function clientOf(terms) {
  return CLIENTS[terms.algorithm];
}
