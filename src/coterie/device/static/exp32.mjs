// exp in single precision with the bits of expf in glibc (since 2.27), which compiled kernels call.
//
// Rounding Math.exp to single precision is more exact, and therefore differs from expf in about one
// of 2,000 values, by one unit in the last place. The method is that of glibc's sysdeps/ieee754/
// flt-32/e_expf.c: exp(x) = 2^(k / 32) * 2^(r / 32), with a table for the first factor and a
// polynomial for the second, all in double precision.

const STEPS = 32;
const STEPS_PER_UNIT = 1.4426950408889634 * STEPS; // 32 / ln 2
const CUBIC = 0.05550361559341535 / STEPS ** 3;
const SQUARE = 0.2402284522445722 / STEPS ** 2;
const LINEAR = 0.6931471806916203 / STEPS;
/** Adding this number and subtracting it again rounds to whole numbers, ties to even. */
const SHIFT = 1.5 * 2 ** 52;
/** Below it, expf is zero: the logarithm of half the smallest number above zero. */
const LOWEST = -103.97207641601562;
/** 2^(k / 32) for k from 0 to 31. */
const POWERS = Float64Array.of(
  1.0, 1.0218971486541166, 1.0442737824274138, 1.0671404006768237, 1.0905077326652577,
  1.1143867425958924, 1.1387886347566916, 1.1637248587775775, 1.189207115002721,
  1.215247359980469, 1.241857812073484, 1.2690509571917332, 1.2968395546510096,
  1.3252366431597413, 1.3542555469368927, 1.383909881963832, 1.4142135623730951,
  1.4451808069770467, 1.4768261459394993, 1.5091644275934228, 1.5422108254079407,
  1.5759808451078865, 1.6104903319492543, 1.645755478153965, 1.681792830507429,
  1.718619298122478, 1.7562521603732995, 1.7947090750031072, 1.8340080864093424,
  1.8741676341103, 1.9152065613971474, 1.9571441241754002,
);

/** exp(x) for a single-precision number that is not above zero. */
export function expOfNegative(x) {
  if (x < LOWEST) return 0;
  if (Number.isNaN(x)) return NaN;
  const z = STEPS_PER_UNIT * x;
  const k = z + SHIFT - SHIFT;
  const r = z - k;
  const scale = POWERS[((k % STEPS) + STEPS) % STEPS] * 2 ** Math.floor(k / STEPS);
  const polynomial = (CUBIC * r + SQUARE) * (r * r) + (LINEAR * r + 1);
  return Math.fround(polynomial * scale);
}

/** 1 / (1 + exp(-x)) in single precision; the exponent is never positive. */
export function sigmoid(x) {
  if (x >= 0) return Math.fround(1 / Math.fround(1 + expOfNegative(-x)));
  const e = expOfNegative(x);
  return Math.fround(e / Math.fround(1 + e));
}
