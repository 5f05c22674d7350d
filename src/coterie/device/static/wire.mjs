// The binary wire format of federated/wire.py: named arrays behind a short header.
//
//   "COT1"  round u32  exchange u8  count u8
//   then per array   name u8  dtype u8  ndim u8  [length u8  name in ASCII]  shape u32 each
//   then the arrays, each starting at a multiple of eight bytes
//
// Decoding is safe on arbitrary bytes: every length is checked against the bytes that are there
// before anything is made of it.

const MAGIC = "COT1";
const HEAD_SIZE = 10;
const ENTRY_SIZE = 3;
const ALIGNED = 8;
const MOST_DIMENSIONS = 3;
const MOST_ARRAYS = 255;
/** Added to the code of an array that is for all clients of a message. */
const COMMON = 64;
/** The code of an array whose name follows in ASCII. */
const SPELLED_OUT = COMMON - 1;
const NAME = /^[a-z][a-z0-9_ ]{0,62}$/;

/** Names with a code of their own, which is their place here. Append only. */
export const NAMES = [
  "users",
  "samples",
  "offsets",
  "items",
  "item_rows",
  "user_rows",
  "dense",
  "cluster",
  "item_bias",
  "tower",
  "item_tower",
  "embeddings",
  "slots",
  "cut",
  "ring",
  "rows",
  "key",
  "touched",
  "attempt",
  "predecessor",
  "predecessor_key",
  "successor",
  "successor_key",
  "share_ciphertext",
  "self_mask_ciphertext",
  "vector",
  "predecessor_uploaded",
  "successor_uploaded",
  "self_mask",
  "stage",
  "accepted",
  "kind",
  "output",
  "bias",
  "groups",
  "units",
  "sizes",
  "user_tower",
];

/** Types of arrays by their code. Half precision stays as bits: JavaScript has no type for it. */
export const DTYPES = [
  { name: "<i4", type: Int32Array },
  { name: "<i8", type: BigInt64Array },
  { name: "<f4", type: Float32Array },
  { name: "<f8", type: Float64Array },
  { name: "|u1", type: Uint8Array },
  { name: "<u8", type: BigUint64Array },
  { name: "<f2", type: Uint16Array },
  { name: "|i1", type: Int8Array },
  { name: "<u4", type: Uint32Array },
];

/** Bytes that are not a message, or arrays that cannot be sent as one. */
export class Malformed extends Error {}

/**
 * An array of a message.
 * @typedef {Object} Named
 * @property {string} name
 * @property {string} dtype as NumPy writes it
 * @property {number[]} shape
 * @property {ArrayBufferView} data
 */

/** An array for `encode`. */
export function named(name, dtype, shape, data) {
  return { name, dtype, shape, data };
}

/** The bytes of a message. `own` and `common` are lists of named arrays. */
export function encode(round, own, common = [], exchange = 0) {
  const arrays = [...own.map((a) => [a, 0]), ...common.map((a) => [a, COMMON])];
  if (arrays.length > MOST_ARRAYS)
    throw new Malformed(`the message has ${arrays.length} arrays; expected at most ${MOST_ARRAYS}`);
  const head = [...ascii(MAGIC), ...u32(round), byte(exchange, "exchange"), arrays.length];
  for (const [array, offset] of arrays) head.push(...entry(array, offset));
  const sizes = arrays.map(([array]) => padded(array.data.byteLength));
  const bytes = new Uint8Array(padded(head.length) + sizes.reduce((sum, n) => sum + n, 0));
  bytes.set(head);
  let at = padded(head.length);
  arrays.forEach(([{ data }], n) => {
    bytes.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), at);
    at += sizes[n];
  });
  return bytes;
}

/** One line of the header. */
function entry({ name, dtype, shape, data }, offset) {
  const code = NAMES.indexOf(name);
  if (code < 0 && !NAME.test(name))
    throw new Malformed(
      `array name '${name}' cannot be sent; expected lower-case letters, digits, spaces and ` +
        "underscores, at most 63 of them, starting with a letter. Rename it.",
    );
  const kind = DTYPES.findIndex((known) => known.name === dtype);
  if (kind < 0 || !(data instanceof DTYPES[kind].type))
    throw new Malformed(
      `array '${name}' has dtype ${dtype} and a ${data.constructor.name}; expected a dtype of ` +
        `${DTYPES.map((known) => known.name).join(", ")} with its type`,
    );
  if (shape.length > MOST_DIMENSIONS || product(shape) !== data.length)
    throw new Malformed(`array '${name}' has ${data.length} entries and the shape [${shape}]`);
  const spelled = code < 0 ? [name.length, ...ascii(name)] : [];
  return [(code < 0 ? SPELLED_OUT : code) + offset, kind, shape.length, ...spelled].concat(
    shape.flatMap(u32),
  );
}

/**
 * Read a message, or throw Malformed. The arrays are views of the bytes where these are aligned.
 * @param {Uint8Array} bytes
 * @returns {{round: number, exchange: number, own: Map<string, Named>, common: Map<string, Named>}}
 */
export function decode(bytes) {
  if (bytes.length < HEAD_SIZE) throw new Malformed(`${bytes.length} bytes are too few for a message`);
  const data = bytes.byteOffset % ALIGNED ? bytes.slice() : bytes;
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  if (latin(data.subarray(0, 4)) !== MAGIC)
    throw new Malformed(`the bytes do not begin with ${MAGIC}`);
  const count = view.getUint8(9);
  const entries = [];
  let at = HEAD_SIZE;
  for (let n = 0; n < count; n++) {
    const read = readEntry(data, view, at);
    entries.push(read);
    at = read.end;
  }
  const own = new Map();
  const common = new Map();
  at = padded(at);
  for (const { name, isCommon, kind, shape } of entries) {
    const length = product(shape);
    const size = DTYPES[kind].type.BYTES_PER_ELEMENT * length;
    const tooLong = padded(size) > data.length - at;
    if (tooLong || (!size && Math.max(0, ...shape) > data.length))
      throw new Malformed(`array '${name}' is longer than the message`);
    const array = new DTYPES[kind].type(data.buffer, data.byteOffset + at, length);
    (isCommon ? common : own).set(name, named(name, DTYPES[kind].name, shape, array));
    at += padded(size);
  }
  if (at !== data.length || own.size + common.size !== count)
    throw new Malformed("the message is longer than its arrays, or two arrays share a name");
  return { round: view.getUint32(4, true), exchange: view.getUint8(8), own, common };
}

function readEntry(data, view, start) {
  if (start + ENTRY_SIZE > data.length) throw new Malformed("the header is cut off");
  const code = data[start];
  const kind = data[start + 1];
  const ndim = data[start + 2];
  if (code >= 2 * COMMON || kind >= DTYPES.length || ndim > MOST_DIMENSIONS)
    throw new Malformed(`the header has an array of code ${code}, dtype ${kind}, ${ndim} dimensions`);
  const { name, end } = readName(data, start + ENTRY_SIZE, code % COMMON);
  if (end + 4 * ndim > data.length) throw new Malformed("the header is cut off");
  const shape = Array.from({ length: ndim }, (_, n) => view.getUint32(end + 4 * n, true));
  return { name, isCommon: code >= COMMON, kind, shape, end: end + 4 * ndim };
}

function readName(data, at, code) {
  if (code < NAMES.length) return { name: NAMES[code], end: at };
  if (code !== SPELLED_OUT) throw new Malformed(`the header has an array of the unknown code ${code}`);
  if (at >= data.length || at + 1 + data[at] > data.length)
    throw new Malformed("the header is cut off");
  const end = at + 1 + data[at];
  const name = latin(data.subarray(at + 1, end));
  // A name with a code of its own is never spelled out: every message has one encoding.
  if (!NAME.test(name) || NAMES.includes(name))
    throw new Malformed("the header spells out what is not a name of an array");
  return { name, end };
}

function padded(size) {
  return size + ((ALIGNED - (size % ALIGNED)) % ALIGNED);
}

/** Above 2^53 the product is not exact, but always longer than a message. */
function product(shape) {
  return shape.reduce((all, n) => all * n, 1);
}

function ascii(text) {
  return Array.from(text, (character) => character.charCodeAt(0));
}

function latin(bytes) {
  return String.fromCharCode(...bytes);
}

function u32(value) {
  if (!Number.isInteger(value) || value < 0 || value >= 2 ** 32)
    throw new Malformed(`${value} cannot be sent; expected a whole number from 0 to 2^32 - 1`);
  return [value & 0xff, (value >>> 8) & 0xff, (value >>> 16) & 0xff, value >>> 24];
}

function byte(value, what) {
  if (!Number.isInteger(value) || value < 0 || value > 255)
    throw new Malformed(`${what} is ${value}; expected a whole number from 0 to 255`);
  return value;
}
