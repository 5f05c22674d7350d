// Answers cases of the tests: JSON lines { kind, ... } in, JSON lines out. Arrays travel as base64.
//
//   node answer_cases.mjs FOLDER < cases, with the folder of the modules

import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const folder = pathToFileURL(`${process.argv[2]}/`);
const load = (name) => import(new URL(name, folder));
const streams = await load("streams.mjs");
const fpl = await load("fpl.mjs");
const wire = await load("wire.mjs");
const { clientOf } = await load("clients.mjs");
const { expOfNegative } = await load("exp32.mjs");
const { quantise } = await load("fixed_point.mjs");
const { bestItems } = await load("recommend.mjs");
const messages = await load("messages.mjs");
const attackers = await load("attackers.mjs");
const { parseCsv, readLikes } = await load("csv.mjs");
const privateState = await load("private_state.mjs");

const bytesOf = (text) => new Uint8Array(Buffer.from(text, "base64")).slice();
const floats = (text) => new Float32Array(bytesOf(text).buffer);
const ints = (text) => new Int32Array(bytesOf(text).buffer);
const base64 = (array) =>
  Buffer.from(array.buffer, array.byteOffset, array.byteLength).toString("base64");

/** What was decoded can be encoded: a refusal here must not pass for one of `decode`. */
function encoded(...parts) {
  try {
    return wire.encode(...parts);
  } catch (error) {
    throw new Error(`cannot be encoded again: ${error.message}`);
  }
}

const ANSWERS = {
  stream({ seed, purpose, indices, n, limit }) {
    const key = streams.key(BigInt(seed), purpose, ...indices);
    const words = Array.from({ length: n }, (_, k) => streams.randomWord(key, k));
    return {
      words: words.map((word) => String(streams.toBigInt(word))),
      below: words.map((word) => streams.below(word, limit)),
      uniform: base64(Float64Array.from(words, streams.uniform)),
      normal: base64(Float32Array.from(streams.normal(key, n))),
    };
  },

  purposes: () =>
    Object.fromEntries(Object.entries(streams.PURPOSES).map(([name, word]) => [name, String(word)])),

  names: () => ({ names: wire.NAMES, dtypes: wire.DTYPES.map(({ name }) => name) }),

  exp: ({ x }) => base64(floats(x).map(expOfNegative)),

  quantise: ({ x }) => base64(Int32Array.from(floats(x), quantise)),

  /** Rounds of one client, each from the row that the last one left. */
  client({ settings, seed, user, pi, positives, hidden, seen, rounds }) {
    const history = {
      positives: ints(positives),
      hidden: bytesOf(hidden),
      seen: ints(seen),
    };
    const size = settings.embedding_size;
    const start = fpl.startRow(settings, BigInt(seed), user);
    const server = {
      regPositive: settings.reg_positive,
      regNegative: settings.reg_negative,
    };
    let row = start;
    let evidence = attackers.noEvidence(size);
    const answers = rounds.map(({ message, sound }) => {
      const bytes = bytesOf(message);
      const { round, common } = wire.decode(bytes);
      const itemRows = common.get("item_rows").data;
      const itemBias = common.get("item_bias").data;
      if (sound) messages.readMessage(bytes, user, itemBias.length, size);
      const table = { round, itemRows, itemBias };
      const made = fpl.clientUpdate(settings, table, history, row, pi, BigInt(seed), user);
      row = made.row;
      const update = messages.writeUpdate(round, user, settings.triples, made, fpl.updateSizes(settings));
      const read = messages.readUpdate(update, itemBias.length, fpl.updateSizes(settings));
      const answer = { update: base64(update), row: base64(row) };
      if (!sound) return answer;
      answer.best = bestItems(row, itemRows, itemBias, history.seen, 10);
      if (messages.isInRange(read.itemRows)) {
        const knowledge = { ...server, nItems: itemBias.length };
        evidence = attackers.withRound(evidence, knowledge, { ...read, sent: itemRows });
        answer.claims = attackers.claims(evidence, knowledge).map((claim) => ({
          name: claim.name,
          uses: claim.uses,
          scores: [...claim.scores],
          elsewhere: claim.elsewhere,
          ...attackers.score(claim, history.positives, itemBias.length),
        }));
      }
      return answer;
    });
    return { start: base64(start), rounds: answers };
  },

  /** One round of a client of FedALS, and a list from a model. */
  fedals({ settings, items, positives, hidden, message, model }) {
    const terms = { algorithm: "fedals", settings, items };
    const liked = ints(positives);
    const history = { positives: liked, hidden: bytesOf(hidden), seen: liked };
    const client = clientOf(terms);
    const device = { user: 5, history, evidence: null };
    const { bytes, alone, together } = client.train(terms, device, bytesOf(message));
    const { best } = client.recommend(terms, device, bytesOf(model), 10);
    return { update: base64(bytes), alone, together, best: best.map(({ item }) => item) };
  },

  /** Decode bytes, and encode what was read. */
  wire({ bytes }) {
    const { round, exchange, own, common } = wire.decode(bytesOf(bytes));
    const again = encoded(round, [...own.values()], [...common.values()], exchange);
    const about = (arrays) => [...arrays.values()].map(({ name, dtype, shape, data }) => ({
      name,
      dtype,
      shape,
      data: base64(data),
    }));
    return { round, exchange, own: about(own), common: about(common), again: base64(again) };
  },

  /** A server's message to user 5, of 4 items and 2 factors. */
  message({ bytes, user }) {
    const { itemRows, itemBias, accepted, ...rest } = messages.readMessage(bytesOf(bytes), user, 4, 2);
    return { ...rest, accepted: String(accepted), sizes: [itemRows.length, itemBias.length] };
  },

  csv: ({ text }) => parseCsv(text),

  likes: ({ text, items }) => readLikes(text, items),

  /** Messages of a server as the page reads them: private state over rounds. */
  commits({ start, steps }) {
    let state = privateState.initialState(floats(start));
    return steps.map(({ accepted, round, row }) => {
      const next = privateState.commit(state, BigInt(accepted), floats(start));
      if (next === null) return null;
      const current = base64(privateState.currentRow(next));
      state = privateState.withPending(next, round, 0, floats(row));
      return current;
    });
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const { kind, ...question } = JSON.parse(line);
  let answer;
  try {
    answer = ANSWERS[kind](question);
  } catch (error) {
    if (!(error instanceof wire.Malformed)) throw error;
    answer = { malformed: error.message };
  }
  console.log(JSON.stringify(answer));
}
