// Times of masks in JavaScript; called by device_masks.py with the number of words of a vector.

const N_WORDS = Number(process.argv[2]);
const ROUNDS = 10;

function rotate(x, bits) {
  return (x << bits) | (x >>> (32 - bits));
}

function quarterRound(x, a, b, c, d) {
  x[a] += x[b];
  x[d] = rotate(x[d] ^ x[a], 16);
  x[c] += x[d];
  x[b] = rotate(x[b] ^ x[c], 12);
  x[a] += x[b];
  x[d] = rotate(x[d] ^ x[a], 8);
  x[c] += x[d];
  x[b] = rotate(x[b] ^ x[c], 7);
}

/** The key stream of ChaCha20 (RFC 8439, Section 2.4) as 32-bit words, from a block count on. */
function chacha20(key, nonce, first, nWords) {
  const start = Uint32Array.of(
    0x61707865, 0x3320646e, 0x79622d32, 0x6b206574, ...key, first, ...nonce,
  );
  const x = new Uint32Array(16);
  const stream = new Uint32Array(Math.ceil(nWords / 16) * 16);
  for (let at = 0; at < stream.length; at += 16) {
    x.set(start);
    for (let n = 0; n < ROUNDS; n++) {
      quarterRound(x, 0, 4, 8, 12);
      quarterRound(x, 1, 5, 9, 13);
      quarterRound(x, 2, 6, 10, 14);
      quarterRound(x, 3, 7, 11, 15);
      quarterRound(x, 0, 5, 10, 15);
      quarterRound(x, 1, 6, 11, 12);
      quarterRound(x, 2, 7, 8, 13);
      quarterRound(x, 3, 4, 9, 14);
    }
    for (let n = 0; n < 16; n++) stream[at + n] = x[n] + start[n];
    start[12] += 1;
  }
  return stream.subarray(0, nWords);
}

/** The first words of the block in RFC 8439, Section 2.3.2. */
function check() {
  const key = new Uint32Array(Uint8Array.from({ length: 32 }, (_, n) => n).buffer);
  const found = chacha20(key, [0x09000000, 0x4a000000, 0], 1, 4);
  const expected = [0xe4e7f110, 0x15593bd1, 0x1fdd0f50, 0xc47120a3];
  if (!expected.every((word, n) => word === found[n])) throw new Error(`wrong stream: ${found}`);
}

/** Milliseconds of the fastest of some calls. */
async function fastest(work, repeats) {
  let best = Infinity;
  for (let n = 0; n < repeats; n++) {
    const began = performance.now();
    await work();
    best = Math.min(best, performance.now() - began);
  }
  return best;
}

async function agreement() {
  const { subtle } = crypto;
  const ours = await subtle.generateKey({ name: "X25519" }, false, ["deriveBits"]);
  const theirs = await subtle.generateKey({ name: "X25519" }, false, ["deriveBits"]);
  await subtle.deriveBits({ name: "X25519", public: theirs.publicKey }, ours.privateKey, 256);
}

check();
const key = crypto.getRandomValues(new Uint32Array(8));
const many = 1 << 22;
const throughput = await fastest(() => chacha20(key, [0, 0, 0], 0, many), 5);
console.log(
  JSON.stringify({
    mb_a_second: Math.round((4 * many) / 1e3 / throughput),
    ms_a_mask: await fastest(() => chacha20(key, [0, 0, 0], 0, N_WORDS), 50),
    ms_a_key_agreement: await fastest(agreement, 20),
  }),
);
