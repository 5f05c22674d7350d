// The attackers that ship with the product against FPL (attacks/attackers.py), for one user: what an
// honest-but-curious server can claim from the rows that this device sent.
//
// An attacker scores every item; a score above zero claims that the user likes it. No attacker knows
// a disclosure rate or the length of a history.

import { extractFeatures, opposite, sureSides } from "./features.mjs";

/** `frequency` claims items with a count that chance gives to fewer items than this. */
const MAX_BY_CHANCE = 1;

/**
 * What a server knows in advance.
 * @typedef {Object} ServerKnowledge
 * @property {number} nItems
 * @property {number} regPositive
 * @property {number} regNegative
 */

/**
 * Everything that was sent so far. It can be stored: it has Maps, numbers and arrays alone.
 * @typedef {Object} Evidence
 * @property {number} rounds in which the user sent rows
 * @property {number} draws triples in those rounds
 * @property {Float64Array} line the user's direction in the last round
 * @property {Map<number, Object>} items by item the times it was sent, and sums of notes
 */

/** Evidence before the first round. @returns {Evidence} */
export function noEvidence(embeddingSize) {
  return { rounds: 0, draws: 0, line: new Float64Array(embeddingSize), items: new Map() };
}

/** The evidence after one more round; `evidence` does not change. */
export function withRound(evidence, server, observation) {
  if (!observation.items.length) return evidence;
  const features = extractFeatures(observation, evidence.line);
  const notes = takeNotes(server, features);
  const items = new Map(evidence.items);
  features.items.forEach((item, r) => {
    const before = items.get(item) ?? { times: 0, bias: 0, side: 0, known: 0, paired: 0, down: 0 };
    items.set(item, {
      times: before.times + 1,
      bias: before.bias + Math.sign(features.biases[r]),
      side: before.side + notes.sides[r],
      known: before.known + notes.known[r],
      paired: before.paired + notes.paired[r],
      down: before.down + (features.biases[r] < 0 ? 1 : 0),
    });
  });
  return {
    rounds: evidence.rounds + 1,
    draws: evidence.draws + observation.samples,
    line: features.line,
    items,
  };
}

function takeNotes(server, features) {
  const { known, paired } = notePairs(server, features);
  return { sides: sureSides(features, server.regPositive, server.regNegative), known, paired };
}

/**
 * For rows with an exact opposite: +1 if liked, -1 if not, 0 if unknown; and their side.
 *
 * The two rows of a triple have different regularisation, and subtracting the right one leaves exact
 * opposites. That tells which row is the liked one.
 */
function notePairs(server, features) {
  const ifPlus = opposite(features, 1, server.regPositive, server.regNegative);
  const ifMinus = opposite(features, -1, server.regPositive, server.regNegative);
  const likedSide = Math.sign(count(ifPlus) - count(ifMinus));
  const isPaired = likedSide < 0 ? ifMinus : ifPlus;
  const paired = features.sides.map((side, r) => (isPaired[r] ? side : 0));
  return { known: paired.map((side) => side * likedSide), paired };
}

/**
 * The claims of every attacker.
 * @returns {{name: string, uses: string, scores: Map<number, number>, elsewhere: number}[]}
 *   `elsewhere` is the score of every item that was never sent
 */
export function claims(evidence, server) {
  return ATTACKERS.map(({ name, uses, claim }) => ({ name, uses, ...claim(evidence, server) }));
}

/** Claim items whose bias rose in more rounds than it fell (Eq. 5). */
function claimBias(evidence) {
  return positive(evidence, (item) => item.bias);
}

/**
 * Claim the smaller side. Negatives are drawn from nearly the whole catalogue and hardly ever
 * repeat; liked items come from a short history, and only a share of them is sent.
 */
function claimSide(evidence) {
  const smaller = smallerSide(evidence, (item) => item.side);
  return positive(evidence, (item) => item.side * smaller);
}

/** Claim the liked item of every pair; where that is unknown, the smaller side. */
function claimPairs(evidence) {
  const isKnown = [...evidence.items.values()].some((item) => item.known !== 0);
  if (isKnown) return positive(evidence, (item) => item.known);
  const smaller = smallerSide(evidence, (item) => item.paired);
  return positive(evidence, (item) => item.paired * smaller);
}

/** +1 or -1: the side with fewer items over all rounds; zero on a tie. */
function smallerSide(evidence, sideOf) {
  const sides = [...evidence.items.values()].map(sideOf);
  return Math.sign(count(sides.map((s) => s < 0)) - count(sides.map((s) => s > 0)));
}

/** Claim items sent in more rounds than an even draw from the catalogue allows. */
function claimFrequent(evidence, server) {
  const least = roundsBeyondChance(evidence, server.nItems);
  return { scores: scores(evidence, (item) => item.times - least + 1), elsewhere: 1 - least };
}

/** The smallest c with n_items * P(Binomial(rounds, chance) >= c) < 1. */
function roundsBeyondChance({ rounds, draws }, nItems) {
  const chance = 1 - (1 - 1 / nItems) ** (draws / Math.max(rounds, 1));
  let least = 1;
  while (nItems * atLeast(least, rounds, chance) >= MAX_BY_CHANCE) least += 1;
  return least;
}

/** P(Binomial(n, p) >= c), summed from the smallest term. */
function atLeast(c, n, p) {
  // As SciPy computes it: with one triple in one round the product with n_items is 1 but for
  // rounding, which decides.
  if (c === 1) return p < 0.01 ? -Math.expm1(n * Math.log1p(-p)) : 1 - (1 - p) ** n;
  let total = 0;
  for (let k = n; k >= c; k--) total += Math.exp(logTerm(k, n, p));
  return total;
}

function logTerm(k, n, p) {
  let choose = 0;
  for (let i = 1; i <= k; i++) choose += Math.log((n - k + i) / i);
  const misses = n > k ? (n - k) * Math.log1p(-p) : 0;
  return choose + k * Math.log(p) + misses;
}

/** Claim items that were never sent: negatives are everything outside the history. */
function claimComplement(evidence) {
  return { scores: scores(evidence, (item) => -item.times), elsewhere: Math.sign(evidence.rounds) };
}

/** Claim items that were never sent with a falling bias. Unlike `complement`, disclosed ones too. */
function claimNeverDown(evidence) {
  return {
    // An item that was sent and never pushed down is certain, so it gets the highest scores.
    scores: scores(evidence, (item) => (item.down > 0 ? -item.down : 1 + item.times)),
    elsewhere: Math.sign(evidence.rounds),
  };
}

function positive(evidence, score) {
  return { scores: scores(evidence, (item) => Math.max(score(item), 0)), elsewhere: 0 };
}

function scores(evidence, score) {
  return new Map([...evidence.items].map(([item, noted]) => [item, score(noted)]));
}

function count(flags) {
  return flags.reduce((n, flag) => n + (flag ? 1 : 0), 0);
}

export const ATTACKERS = [
  { name: "bias-sign", uses: "the sign of bias updates", claim: claimBias },
  {
    name: "factor-sign",
    uses: "the sides of factor updates; the smaller one is liked",
    claim: claimSide,
  },
  {
    name: "pairing",
    uses: "factor updates that are exact opposites: a triple's items",
    claim: claimPairs,
  },
  {
    name: "frequency",
    uses: "the number of rounds in which an item was sent",
    claim: claimFrequent,
  },
  { name: "complement", uses: "items that were never sent", claim: claimComplement },
  {
    name: "never-down",
    uses: "items that were never sent with a falling bias",
    claim: claimNeverDown,
  },
];

/**
 * Compare claims with the user's history, which only the device can do.
 * @returns {{claims: number, hits: number, liked: number, found: number[]}} `found` are the claimed
 *   items that the user likes
 */
export function score({ scores: byItem, elsewhere }, positives, nItems) {
  const isClaimed = (item) => (byItem.has(item) ? byItem.get(item) : elsewhere) > 0;
  const sentClaims = count([...byItem.values()].map((value) => value > 0));
  const found = Array.from(positives).filter(isClaimed);
  const rest = elsewhere > 0 ? nItems - byItem.size : 0;
  return { claims: sentClaims + rest, hits: found.length, liked: positives.length, found };
}
