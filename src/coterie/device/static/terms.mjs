// The terms of a federation, checked before anything is computed from them.

import { key, toBigInt } from "./streams.mjs";

const READINGS = ["authors", "literal"];
/** Settings of algorithms/fpl.py that a client needs: the least value, and whether it is whole. */
const FPL_NUMBERS = {
  embedding_size: { least: 1, most: 4096, isWhole: true },
  triples: { least: 1, most: 100_000, isWhole: true },
  learning_rate: { least: 0, most: Infinity, isWhole: false },
  reg_user: { least: 0, most: Infinity, isWhole: false },
  reg_positive: { least: 0, most: Infinity, isWhole: false },
  reg_negative: { least: 0, most: Infinity, isWhole: false },
  reg_bias: { least: 0, most: Infinity, isWhole: false },
  start_scale: { least: 0, most: Infinity, isWhole: false },
};
/** Settings of algorithms/fedals.py that a client needs. */
const FEDALS_NUMBERS = {
  embedding_size: { least: 1, most: 512, isWhole: true },
  alpha: { least: 0, most: Infinity, isWhole: false },
  reg: { least: Number.MIN_VALUE, most: Infinity, isWhole: false },
  reg_exponent: { least: 0, most: 2, isWhole: false },
};
/** Why this page takes no part in what others can: docs/device.md has the measurements. */
const WHY_NOT = {
  fedease: "Its plain message is the history, and its model has a number for each pair of items. ",
  fedslim: "Its plain message is the history, and its model has a number for each pair of items. ",
  ring: "The page has no client of the stages of secure aggregation. ",
  secagg: "The page has no client of the stages of secure aggregation. ",
};
/** Algorithms whose client this page has, with the settings of their clients. */
const NUMBERS = { pfpl: FPL_NUMBERS, "pfpl+": FPL_NUMBERS, fedals: FEDALS_NUMBERS };
const MOST_ITEMS = 2 ** 24;

/** The terms, or an error if this page cannot take part under them. */
export function checkTerms(terms) {
  const numbers = NUMBERS[terms.algorithm];
  refuseUnless(numbers !== undefined, "algorithm", terms.algorithm, Object.keys(NUMBERS));
  refuseUnless(terms.messages === "plain", "messages", terms.messages, ["plain"]);
  const { settings } = terms;
  if (numbers === FPL_NUMBERS)
    refuseUnless(READINGS.includes(settings.reading), "reading", settings.reading, READINGS);
  for (const [name, rule] of Object.entries(numbers)) checkNumber(name, settings[name], rule);
  checkNumber("items", terms.items, { least: 2, most: MOST_ITEMS, isWhole: true });
  return terms;
}

/** The items of the catalogue, of which there must be as many as the terms say. */
export function checkCatalogue({ items }, terms) {
  if (!Array.isArray(items) || items.length !== terms.items)
    throw new RangeError(
      `the catalogue has ${items?.length} items; expected ${terms.items}, as in the terms. ` +
        "Tell the federation's owner.",
    );
  return items.map(({ id, title }) => ({ id: String(id), title: String(title || id) }));
}

/** The rate that the federation proposes; one that users draw from a distribution is 1 here. */
export function proposedRate(terms) {
  const rate = Number(terms.settings.disclosure);
  return rate >= 0 && rate <= 1 ? rate : 1;
}

/** A seed of the client's draws that only this browser knows. */
export function secretSeed() {
  return crypto.getRandomValues(new BigUint64Array(1))[0];
}

/** The seed of a simulation's clients. With it, a server can repeat the draws of this device. */
export function simulatedSeed(terms) {
  checkNumber("seed", terms.seed, { least: 0, most: Number.MAX_SAFE_INTEGER, isWhole: true });
  return toBigInt(key(BigInt(terms.seed), "devices"));
}

function checkNumber(name, value, { least, most, isWhole }) {
  const fits = Number.isFinite(value) && value >= least && value <= most;
  if (!fits || (isWhole && !Number.isInteger(value)))
    throw new RangeError(
      `the federation's ${name} is ${value}; expected a ${isWhole ? "whole " : ""}number from ` +
        `${least}${most === Infinity ? "" : ` to ${most}`}. Tell the federation's owner.`,
    );
}

function refuseUnless(isRight, name, value, expected) {
  if (!isRight)
    throw new RangeError(
      `the federation's ${name} is ${value}; this page takes part with ${expected.join(" or ")}. ` +
        `${WHY_NOT[value] ?? ""}Use a node for others.`,
    );
}
