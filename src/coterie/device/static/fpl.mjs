// What a client of FPL computes in a round (Anelli et al. 2022, Section 4; algorithms/fpl.py).
//
// Every operation is rounded to single precision, in the order of kernels/fpl.py. The compiled
// kernel uses neither fastmath nor fused multiply-add, so both give the same bits.

import { sigmoid } from "./exp32.mjs";
import { quantise } from "./fixed_point.mjs";
import { noRows } from "./messages.mjs";
import { below, key, normal, randomWord, uniform } from "./streams.mjs";

const f32 = Math.fround;

/**
 * What a client trains on. All lists ascend, without repeats.
 * @typedef {Object} History
 * @property {Int32Array} positives the items that the user likes
 * @property {Uint8Array} hidden 1 for every positive that is never disclosed
 * @property {Int32Array} seen items that are never drawn as negatives; the positives among them
 */

/** How an update is laid out: a row and a bias for each item. */
export function updateSizes(settings) {
  return { itemRow: settings.embedding_size + 1, dense: 0 };
}

/** The user's row before the first round. */
export function startRow(settings, seed, user) {
  const drawn = normal(key(seed, "start users", user), settings.embedding_size);
  return Float32Array.from(drawn, (x) => x * settings.start_scale);
}

/**
 * One round of a client: its update, and its row afterwards.
 *
 * A user with no items, or with every item, has no triples and sends no rows.
 * @param {Float32Array} row the user's row, which stays on the device
 * @param {{round: number, itemRows: Float32Array, itemBias: Float32Array}} message
 * @param {number} pi the share of positives whose updates are sent
 */
export function clientUpdate(settings, message, history, row, pi, seed, user) {
  const d = settings.embedding_size;
  const nItems = message.itemBias.length;
  const after = Float32Array.from(row);
  if (!history.positives.length || history.seen.length >= nItems)
    return { ...noRows(), row: after };
  const streamKey = key(seed, "triples", message.round, user);
  const triples = drawTriples(streamKey, history, nItems, pi, settings.triples);
  const { items, places } = listItems(triples);
  const gradients = learn(settings, message, triples, places, items.length, after);
  return { ...noRows(), items, itemRows: Int32Array.from(gradients, quantise), row: after };
}

/** Draw T triples (u, i, j) with replacement, and for each i whether it is shown. */
export function drawTriples(streamKey, history, nItems, pi, T) {
  const { positives, hidden, seen } = history;
  const rate = f32(pi);
  const liked = new Int32Array(T);
  const others = new Int32Array(T);
  const shown = new Uint8Array(T);
  for (let s = 0; s < T; s++) {
    const at = below(randomWord(streamKey, 3 * s), positives.length);
    const coin = uniform(randomWord(streamKey, 3 * s + 1));
    const rank = below(randomWord(streamKey, 3 * s + 2), nItems - seen.length);
    liked[s] = positives[at];
    others[s] = nthUnseen(seen, rank);
    shown[s] = coin < rate && !hidden[at] ? 1 : 0;
  }
  return { liked, others, shown };
}

/** The item that has `rank` unseen items before it. */
function nthUnseen(seen, rank) {
  let low = 0;
  let left = seen.length;
  while (left > 0) {
    const half = left >> 1;
    const middle = low + half;
    const right = seen[middle] - middle <= rank;
    low = right ? middle + 1 : low;
    left = right ? left - half - 1 : half;
  }
  return rank + low;
}

/**
 * The items whose rows are sent, ascending: every j, and every i that is shown.
 *
 * `places` has the position in `items` of every j, then of every shown i. The ascending order does
 * not reveal the order in which items were drawn.
 */
function listItems({ liked, others, shown }) {
  const listed = [...others, ...liked.filter((_, s) => shown[s])];
  const items = Int32Array.from(new Set(listed)).sort();
  const position = new Map();
  items.forEach((item, r) => position.set(item, r));
  return { items, places: Int32Array.from(listed, (item) => position.get(item)) };
}

/**
 * Eqs. 3 to 6. Writes `p`, and returns the gradients (rows, d + 1) that are sent: the item row,
 * then its bias. Item rows do not change during the round. p is updated after every triple or, in
 * the literal reading, once at the end.
 */
function learn(settings, message, triples, places, nRows, p) {
  const { liked, others, shown } = triples;
  const { itemRows: Q, itemBias: b } = message;
  const d = p.length;
  const rate = f32(settings.learning_rate);
  const regUser = f32(settings.reg_user);
  const regPositive = f32(settings.reg_positive);
  const regNegative = f32(settings.reg_negative);
  const regBias = f32(settings.reg_bias);
  const isLiteral = settings.reading === "literal";
  // Assigning to an entry of a Float32Array rounds to single precision.
  const gradients = new Float32Array(nRows * (d + 1));
  const own = new Float32Array(d);
  let at = liked.length;
  for (let s = 0; s < liked.length; s++) {
    const i = liked[s];
    const j = others[s];
    const x = f32(margin(p, Q, i * d, j * d) + f32(b[i] - b[j]));
    const e = f32(1 - sigmoid(x));
    const down = places[s] * (d + 1);
    for (let f = 0; f < d; f++)
      gradients[down + f] -= f32(f32(e * p[f]) + f32(regNegative * Q[j * d + f]));
    gradients[down + d] -= f32(e + f32(regBias * b[j]));
    if (shown[s]) {
      const up = places[at] * (d + 1);
      at += 1;
      for (let f = 0; f < d; f++)
        gradients[up + f] += f32(f32(e * p[f]) - f32(regPositive * Q[i * d + f]));
      gradients[up + d] += f32(e - f32(regBias * b[i]));
    }
    for (let f = 0; f < d; f++) {
      const difference = f32(Q[i * d + f] - Q[j * d + f]);
      const move = f32(f32(e * difference) - f32(regUser * p[f]));
      if (isLiteral) own[f] += move;
      else p[f] += f32(rate * move);
    }
  }
  if (isLiteral) for (let f = 0; f < d; f++) p[f] += f32(rate * own[f]);
  return gradients;
}

/** p . (q_i - q_j), in four partial sums of a fixed order. */
function margin(p, Q, i, j) {
  const d = p.length;
  const whole = d - (d % 4);
  let x0 = 0;
  let x1 = 0;
  let x2 = 0;
  let x3 = 0;
  for (let f = 0; f < whole; f += 4) {
    x0 = f32(x0 + f32(p[f] * f32(Q[i + f] - Q[j + f])));
    x1 = f32(x1 + f32(p[f + 1] * f32(Q[i + f + 1] - Q[j + f + 1])));
    x2 = f32(x2 + f32(p[f + 2] * f32(Q[i + f + 2] - Q[j + f + 2])));
    x3 = f32(x3 + f32(p[f + 3] * f32(Q[i + f + 3] - Q[j + f + 3])));
  }
  for (let f = whole; f < d; f++) x0 = f32(x0 + f32(p[f] * f32(Q[i + f] - Q[j + f])));
  return f32(f32(x0 + x1) + f32(x2 + x3));
}
