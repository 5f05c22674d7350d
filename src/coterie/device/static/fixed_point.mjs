// Fixed point for updates: q = rint(change * 2^20), as in kernels/quantise.py.

export const SCALE = 1 << 20;
/** Exclusive bound on the entries of an update. */
export const TOO_LARGE = 8 * SCALE;
/** Sent in place of NaN or infinity. The server rejects it as out of range. */
export const NOT_FINITE = -(2 ** 31);

/** Adding this number and subtracting it again rounds to whole numbers, ties to even. */
const SHIFT = 1.5 * 2 ** 52;

/** A single-precision number as a 32-bit integer in units of 2^-20. */
export function quantise(change) {
  const scaled = Math.fround(change * SCALE);
  if (!Number.isFinite(scaled)) return NOT_FINITE;
  if (Math.abs(scaled) >= TOO_LARGE) return TOO_LARGE;
  const rounded = scaled + SHIFT - SHIFT;
  return Math.abs(rounded) < TOO_LARGE ? rounded : TOO_LARGE;
}

export function dequantise(entry) {
  return entry / SCALE;
}
