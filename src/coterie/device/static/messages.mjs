// The two messages of a round in bytes: what the server sends to a client, and its update.

import { TOO_LARGE } from "./fixed_point.mjs";
import { Malformed, decode, encode, named } from "./wire.mjs";

/**
 * The server's message for one user, or Malformed.
 *
 * `user` is null on a device that was enrolled before the federation began: users have no indices
 * until then, and the first message tells. Where `hasBias` is false, the item table has no biases.
 * @returns {{round: number, exchange: number, user: number, accepted: bigint,
 *            itemRows: Float32Array, itemBias: Float32Array}}
 */
export function readMessage(bytes, user, nItems, embeddingSize, { hasBias = true } = {}) {
  const { round, exchange, own, common } = decode(bytes);
  const users = column(own, "users", "<i4", [1]).data;
  if (user !== null && users[0] !== user)
    throw new Malformed(`the message is for user ${users[0]}; this device is user ${user}`);
  if (exchange !== 0) throw new Malformed(`exchange ${exchange} does not exist`);
  return {
    round,
    exchange,
    user: users[0],
    accepted: column(own, "accepted", "<i8", [1]).data[0],
    ...itemTable(common, nItems, embeddingSize, hasBias),
  };
}

/** The item table for recommendations, and how many rounds it was trained for. */
export function readModel(bytes, nItems, embeddingSize) {
  const { round, common } = decode(bytes);
  return { round, ...itemTable(common, nItems, embeddingSize, true) };
}

function itemTable(arrays, nItems, embeddingSize, hasBias) {
  const itemRows = column(arrays, "item_rows", "<f4", [nItems, embeddingSize]).data;
  const itemBias = hasBias
    ? column(arrays, "item_bias", "<f4", [nItems]).data
    : new Float32Array(nItems);
  if (!itemRows.every(Number.isFinite) || !itemBias.every(Number.isFinite))
    throw new Malformed("the item table has an entry that is not finite");
  return { itemRows, itemBias };
}

/**
 * What a client sends, in fixed point.
 * @typedef {Object} Rows
 * @property {Int32Array} items ascending
 * @property {Int32Array} itemRows (items, sizes.itemRow)
 * @property {Int32Array} dense (sizes.dense,) what belongs to no item
 */

/** An update without rows. @returns {Rows} */
export function noRows() {
  return { items: new Int32Array(0), itemRows: new Int32Array(0), dense: new Int32Array(0) };
}

/**
 * The bytes of a client's update: the columns of `Updates` in types.py.
 * @param {Rows} update
 * @param {{itemRow: number, dense: number}} sizes
 */
export function writeUpdate(round, user, samples, update, sizes, exchange = 0) {
  const n = update.items.length ? 1 : 0; // without rows there is no update
  const rows = update.items.length;
  return encode(
    round,
    [
      named("users", "<i4", [n], Int32Array.of(user).subarray(0, n)),
      named("samples", "<i8", [n], BigInt64Array.of(BigInt(samples)).subarray(0, n)),
      named("offsets", "<i8", [n + 1], BigInt64Array.of(0n, BigInt(rows)).subarray(0, n + 1)),
      named("items", "<i4", [rows], update.items),
      named("item_rows", "<i4", [rows, sizes.itemRow], update.itemRows),
      named("user_rows", "<i4", [n, 0], new Int32Array(0)),
      named("dense", "<i4", [n, sizes.dense], update.dense.subarray(0, n * sizes.dense)),
    ],
    [],
    exchange,
  );
}

/** The bytes that decline a message: an update of no users, which tells nothing else. */
export function writeRefusal(messageBytes, sizes) {
  const { round, exchange } = decode(messageBytes);
  return writeUpdate(round, 0, 0, noRows(), sizes, exchange);
}

/**
 * What the bytes of an update tell their receiver, or Malformed.
 * @returns {{round: number, users: number[], samples: number, items: Int32Array,
 *            itemRows: Int32Array, width: number, bytes: number, arrays: Object[]}}
 */
export function readUpdate(bytes, nItems, sizes) {
  const { round, own, common } = decode(bytes);
  if (common.size) throw new Malformed("an update has no arrays for all clients");
  const users = [...column(own, "users", "<i4", [null]).data];
  const samples = column(own, "samples", "<i8", [users.length]).data;
  const items = column(own, "items", "<i4", [null]).data;
  const itemRows = column(own, "item_rows", "<i4", [items.length, sizes.itemRow]).data;
  column(own, "dense", "<i4", [users.length, sizes.dense]);
  const outside = items.find((item) => item < 0 || item >= nItems);
  if (outside !== undefined)
    throw new Malformed(`the update has a row of item ${outside}; expected 0 to ${nItems - 1}`);
  const arrays = [...own.values()].map(({ name, dtype, shape, data }) => ({
    name,
    dtype,
    shape,
    bytes: data.byteLength,
  }));
  return {
    round,
    users,
    samples: samples.length ? Number(samples[0]) : 0,
    items,
    itemRows,
    width: sizes.itemRow,
    bytes: bytes.length,
    arrays,
  };
}

/** Whether a server's validation would accept the entries of an update. */
export function isInRange(itemRows) {
  return itemRows.every((entry) => entry > -TOO_LARGE && entry < TOO_LARGE);
}

/** An array of a given type and shape; `null` stands for any length. */
function column(arrays, name, dtype, shape) {
  const found = arrays.get(name);
  if (!found) throw new Malformed(`the message has no column '${name}'`);
  const fits =
    found.shape.length === shape.length &&
    shape.every((length, axis) => length === null || length === found.shape[axis]);
  if (found.dtype !== dtype || !fits)
    throw new Malformed(
      `column '${name}' has dtype ${found.dtype} and shape [${found.shape}]; ` +
        `expected ${dtype} and [${shape.map((length) => length ?? "any")}]`,
    );
  return found;
}
