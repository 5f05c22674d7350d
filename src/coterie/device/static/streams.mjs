// Random streams, bit-equal to core/streams.py: a stream is a function of seed, purpose, indices.
//
// A 64-bit word is { hi, lo }, two unsigned 32-bit integers. This takes a quarter of the time of
// BigInt (benchmarks/device_kernel.py).

/** The BLAKE2b hash of every purpose that a device draws for (`streams._word` in Python). */
export const PURPOSES = {
  devices: 0x407911fc04e2c5c7n,
  "start users": 0x43f0eb2eea719c84n,
  triples: 0xaee74dde9970473bn,
};

const GOLDEN = { hi: 0x9e3779b9, lo: 0x7f4a7c15 };
const FACTOR1 = { hi: 0xbf58476d, lo: 0x1ce4e5b9 };
const FACTOR2 = { hi: 0x94d049bb, lo: 0x133111eb };
const TWO_32 = 2 ** 32;

/** A whole number (number or BigInt) modulo 2^64. */
export function word(value) {
  const bits = BigInt.asUintN(64, BigInt(value));
  return { hi: Number(bits >> 32n), lo: Number(bits & 0xffffffffn) };
}

export function toBigInt(a) {
  return (BigInt(a.hi) << 32n) | BigInt(a.lo);
}

function add(a, b) {
  const lo = a.lo + b.lo;
  const carry = lo >= TWO_32 ? 1 : 0;
  return { hi: (a.hi + b.hi + carry) >>> 0, lo: lo >>> 0 };
}

function xor(a, b) {
  return { hi: (a.hi ^ b.hi) >>> 0, lo: (a.lo ^ b.lo) >>> 0 };
}

/** a ^ (a >> bits), for 0 < bits < 32. */
function xorShifted(a, bits) {
  const lo = (a.lo >>> bits) | (a.hi << (32 - bits));
  return { hi: (a.hi ^ (a.hi >>> bits)) >>> 0, lo: (a.lo ^ lo) >>> 0 };
}

function multiply(a, b) {
  const hi = highProduct(a.lo, b.lo) + Math.imul(a.hi, b.lo) + Math.imul(a.lo, b.hi);
  return { hi: hi >>> 0, lo: Math.imul(a.lo, b.lo) >>> 0 };
}

/** The upper 32 bits of the product of two unsigned 32-bit integers; every sum fits 53 bits. */
function highProduct(a, b) {
  const a0 = a & 0xffff;
  const a1 = a >>> 16;
  const b0 = b & 0xffff;
  const b1 = b >>> 16;
  const low = a0 * b0;
  const middle = a1 * b0 + (low >>> 16);
  const other = a0 * b1 + (middle & 0xffff);
  return a1 * b1 + (middle >>> 16) + (other >>> 16);
}

/** SplitMix64's finaliser: every input bit affects every output bit. */
export function mix(a) {
  const first = multiply(xorShifted(a, 30), FACTOR1);
  return xorShifted(multiply(xorShifted(first, 27), FACTOR2), 31);
}

/** The key of one stream. `seed` is a BigInt or a number, `indices` are whole numbers. */
export function key(seed, purpose, ...indices) {
  if (!(purpose in PURPOSES))
    throw new RangeError(
      `purpose '${purpose}' has no stream on a device; ` +
        `expected one of ${Object.keys(PURPOSES).join(", ")}. Add its word to PURPOSES.`,
    );
  let found = mix(word(seed));
  for (const part of [PURPOSES[purpose], ...indices])
    found = mix(xor(found, add(word(part), GOLDEN)));
  return found;
}

/** Word n of the stream (SplitMix64). It does not need the words before it. */
export function randomWord(streamKey, n) {
  return mix(add(streamKey, multiply(GOLDEN, { hi: 0, lo: n + 1 })));
}

/** A number below n, from a random word (multiply-shift; the bias is at most n / 2^32). */
export function below(random, n) {
  // Two products of 16 by 31 bits are exact; one of 32 by 31 bits is not.
  const low = Math.floor(((random.hi & 0xffff) * n) / 65536);
  return Math.floor(((random.hi >>> 16) * n + low) / 65536);
}

/** The upper 53 bits of a word, as a whole number. */
function upper53(a) {
  return a.hi * 2 ** 21 + (a.lo >>> 11);
}

/** A number in [0, 1). */
export function uniform(random) {
  return upper53(random) * 2 ** -53;
}

/** n standard normal numbers of one stream (Box-Muller 1958). */
export function normal(streamKey, n) {
  const drawn = new Float64Array(n + (n % 2));
  for (let j = 0; j < drawn.length; j += 2) {
    const first = (upper53(randomWord(streamKey, j)) + 0.5) * 2 ** -53;
    const second = (upper53(randomWord(streamKey, j + 1)) + 0.5) * 2 ** -53;
    const radius = Math.sqrt(-2 * Math.log(first));
    const angle = 2 * Math.PI * second;
    drawn[j] = radius * Math.cos(angle);
    drawn[j + 1] = radius * Math.sin(angle);
  }
  return drawn.subarray(0, n);
}
