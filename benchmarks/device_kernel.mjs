// Times of the device's modules in Node.js; called by device_kernel.py with the folder of modules.

import { pathToFileURL } from "node:url";

const folder = pathToFileURL(`${process.argv[2]}/`);
const load = (name) => import(new URL(name, folder));
const streams = await load("streams.mjs");
const fpl = await load("fpl.mjs");
const { bestItems } = await load("recommend.mjs");
const { writeUpdate } = await load("messages.mjs");
const { inspect } = await load("fpl_client.mjs");

const WORDS = 200_000;
const MASK = (1n << 64n) - 1n;

/** SplitMix64 with BigInt, as core/streams.py writes it. */
function randomWordBig(key, n) {
  let word = (key + 0x9e3779b97f4a7c15n * BigInt(n + 1)) & MASK;
  word = ((word ^ (word >> 30n)) * 0xbf58476d1ce4e5b9n) & MASK;
  word = ((word ^ (word >> 27n)) * 0x94d049bb133111ebn) & MASK;
  return word ^ (word >> 31n);
}

/** Milliseconds of the fastest of some calls. */
function fastest(work, repeats) {
  let best = Infinity;
  for (let n = 0; n < repeats; n++) {
    const began = performance.now();
    work();
    best = Math.min(best, performance.now() - began);
  }
  return best;
}

const key = streams.key(1n, "triples", 0, 0);
const big = streams.toBigInt(key);
let last;
const pairs = fastest(() => {
  for (let n = 0; n < WORDS; n++) last = streams.randomWord(key, n);
}, 7);
const bigint = fastest(() => {
  for (let n = 0; n < WORDS; n++) last = randomWordBig(big, n);
}, 7);

// A client of MovieLens-100K: 1,682 items, 106 items liked, as many triples.
const nItems = 1682;
const size = 16;
const settings = {
  embedding_size: size,
  triples: 106,
  learning_rate: 0.05,
  reg_user: 0.0025,
  reg_positive: 0.0025,
  reg_negative: 0.00025,
  reg_bias: 0,
  start_scale: 0.1,
  reading: "authors",
};
const itemRows = Float32Array.from({ length: nItems * size }, (_, k) => Math.sin(k) / 10);
const itemBias = new Float32Array(nItems);
const positives = Int32Array.from({ length: 106 }, (_, k) => 15 * k);
const history = { positives, hidden: new Uint8Array(106), seen: positives };
const row = fpl.startRow(settings, 1n, 0);
const message = { round: 0, itemRows, itemBias };
const round = () => fpl.clientUpdate(settings, message, history, row, 0.5, 1n, 0);
const bytes = writeUpdate(0, 0, settings.triples, round(), fpl.updateSizes(settings));
const terms = { settings, items: nItems };

console.log(
  JSON.stringify({
    "ns a word, pairs of 32 bits": (1e6 * pairs) / WORDS,
    "ns a word, BigInt": (1e6 * bigint) / WORDS,
    "ms a round": fastest(round, 50),
    "ms for six attackers": fastest(
      () => inspect(terms, { history, evidence: null }, bytes, itemRows),
      20,
    ),
    "ms a list of ten": fastest(() => bestItems(row, itemRows, itemBias, positives, 10), 50),
    "bytes of the update": bytes.length,
  }),
);
