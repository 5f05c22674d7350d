// Features of the rows that one user sent in a round (attacks/features.py): the direction of the
// user's row, the side of every row along it, and pairs of exact opposites.

import { SCALE } from "./fixed_point.mjs";

const POWER_STEPS = 2;
/** Largest difference in an entry, in units of fixed point, between two opposite rows. */
const ROUNDING = 2;

/**
 * All that a server sees of one user in a round.
 * @typedef {Object} Observation
 * @property {number} samples the reported number of triples
 * @property {Int32Array} items
 * @property {Int32Array} itemRows (rows, d + 1) in fixed point, the bias last
 * @property {Float32Array} sent (items, d) the item rows that the server had sent
 */

/**
 * @param {Observation} observation
 * @param {Float64Array} lineBefore the user's line in the last round, zero for a first one
 */
export function extractFeatures(observation, lineBefore) {
  const d = lineBefore.length;
  const { items, itemRows, sent } = observation;
  const factors = Array.from(items, (_, r) =>
    Float64Array.from(itemRows.subarray(r * (d + 1), r * (d + 1) + d)),
  );
  const sentRows = Array.from(items, (item) => sent.subarray(item * d, (item + 1) * d));
  let line = principalDirection(factors, d);
  if (dot(line, lineBefore) < 0) line = line.map((x) => -x);
  const along = Float64Array.from(factors, (row) => dot(row, line));
  return {
    items,
    biases: Array.from(items, (_, r) => itemRows[r * (d + 1) + d]),
    factors,
    sentRows,
    line,
    along,
    sentAlong: Float64Array.from(sentRows, (row) => dot(row, line)),
    sides: Array.from(along, Math.sign),
  };
}

/** The first principal direction of the rows, by power iteration from the longest. */
function principalDirection(factors, d) {
  let longest = factors[0];
  for (const row of factors) if (dot(row, row) > dot(longest, longest)) longest = row;
  let line = unit(longest);
  for (let step = 0; step < POWER_STEPS; step++) {
    const sum = new Float64Array(d);
    for (const row of factors) {
      const along = dot(row, line);
      row.forEach((x, f) => (sum[f] += x * along));
    }
    line = unit(sum);
  }
  return line;
}

/** The sides of rows; zero where regularisation or rounding could account for the whole row. */
export function sureSides(features, ...regularisation) {
  const reg = Math.max(...regularisation) * SCALE;
  return features.sides.map((side, r) => {
    const bound = Math.abs(features.sentAlong[r]) * reg + ROUNDING;
    return Math.abs(features.along[r]) > bound ? side : 0;
  });
}

/**
 * For every row whether it has an exact opposite, if liked items are on `likedSide`.
 *
 * Such rows belong to one triple. The server knows the item rows that it sent, so it can subtract
 * the regularisation; what remains is e p_u and -e p_u.
 */
export function opposite(features, likedSide, regPositive, regNegative) {
  const { along, sentAlong, sides, factors } = features;
  const liked = sides.map((side) => side === likedSide);
  const reg = liked.map((isLiked) => (isLiked ? regPositive : regNegative) * SCALE);
  const size = along.map((x, r) => Math.abs(x + reg[r] * sentAlong[r]));
  const rank = size.map((x) => Math.trunc(x * 64));
  const order = [...rank.keys()].sort((a, b) => rank[a] - rank[b]);
  const tolerance = ROUNDING * Math.sqrt(factors[0].length);
  const paired = new Array(order.length).fill(false);
  for (let n = 0; n + 1 < order.length; n++) {
    const first = order[n];
    const second = order[n + 1];
    const isClose =
      liked[first] !== liked[second] &&
      Math.abs(size[first] - size[second]) <= tolerance &&
      size[first] > 8 * ROUNDING; // rows near zero are opposite to each other by chance
    if (isClose && areOpposite(features, first, second, reg)) {
      paired[first] = true;
      paired[second] = true;
    }
  }
  return paired;
}

function areOpposite({ factors, sentRows }, first, second, reg) {
  return factors[first].every((x, f) => {
    const one = x + reg[first] * sentRows[first][f];
    const other = factors[second][f] + reg[second] * sentRows[second][f];
    return Math.abs(one + other) <= ROUNDING;
  });
}

function unit(row) {
  const length = Math.sqrt(dot(row, row));
  return Float64Array.from(row, (x) => (length > 0 ? x / length : x));
}

function dot(first, second) {
  let total = 0;
  for (let f = 0; f < first.length; f++) total += first[f] * second[f];
  return total;
}
