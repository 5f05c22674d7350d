// The user's row between rounds, as a node's store has it (deployment/node.py).
//
// A round makes a pending row. It counts once a message of the server says that the update was
// accepted: a refused, late or lost update has no effect, and a server can repeat a round.

/** The tag of a user of whom no update was accepted. */
export const NEVER = -1n;
/** Rows that are kept, so that a server can go back by so many accepted updates. */
export const GENERATIONS = 64;
const EXCHANGES = 256n;
const ROUNDS = 1n << 32n;

/**
 * @typedef {Object} PrivateState
 * @property {{tag: bigint, row: Float32Array}[]} committed by tag, oldest first
 * @property {{round: number, exchange: number, row: Float32Array} | null} pending
 */

/** The state before the first round. */
export function initialState(row) {
  return { committed: [{ tag: NEVER, row }], pending: null };
}

/**
 * The state after a message that reports `accepted` as the tag of the last accepted update, or null
 * if the device has no row of that tag: the server or the device was restored from another copy.
 */
export function commit(state, accepted, start) {
  if (accepted === NEVER) return initialState(start);
  const committed = [...state.committed];
  if (state.pending && isTagOf(accepted, state.pending))
    committed.push({ tag: accepted, row: state.pending.row });
  const at = committed.findLastIndex(({ tag }) => tag === accepted);
  if (at < 0) return null;
  return { committed: committed.slice(Math.max(0, at + 1 - GENERATIONS), at + 1), pending: null };
}

/** The row that counts. */
export function currentRow(state) {
  return state.committed.at(-1).row;
}

export function withPending(state, round, exchange, row) {
  return { ...state, pending: { round, exchange, row } };
}

/**
 * Whether a tag (`branch_rounds.tag` in Python) is that of a round and exchange, in any branch of
 * the run: a pending row is always of the branch of the last message.
 */
function isTagOf(tag, { round, exchange }) {
  const number = tag - 1n;
  return number % EXCHANGES === BigInt(exchange) && (number / EXCHANGES) % ROUNDS === BigInt(round);
}
