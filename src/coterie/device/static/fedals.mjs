// What a client of FedALS computes in a round (algorithms/fedals.py, local/least_squares.py).
//
// Everything is in double precision until the row is rounded to single precision, as in
// kernels/als.py. The compiled kernel fuses multiplication and addition, which JavaScript cannot, so
// an entry may differ by one unit of fixed point.

/** How an update is laid out: a row of the user, and items without rows. */
export function updateSizes(settings) {
  return { itemRow: 0, dense: settings.embedding_size };
}

/**
 * x = (Y^T C Y + ridge I)^-1 Y^T C p: the row of a user who likes `positives`.
 * @param {{embedding_size: number, alpha: number, reg: number, reg_exponent: number}} settings
 * @param {Float32Array} itemRows (items, d)
 * @param {Int32Array} positives ascending
 */
export function solveRow(settings, itemRows, positives) {
  const d = settings.embedding_size;
  const { alpha } = settings;
  const A = symmetricSum(itemRows, allItems(itemRows.length / d), d);
  const own = symmetricSum(itemRows, positives, d);
  A.forEach((entry, at) => (A[at] = entry + alpha * own[at]));
  const ridge = ridgeOf(settings, positives.length, itemRows.length / d);
  for (let f = 0; f < d; f++) A[f * d + f] += ridge;
  const v = new Float64Array(d);
  for (const item of positives)
    for (let f = 0; f < d; f++) v[f] += (1 + alpha) * itemRows[item * d + f];
  return Float32Array.from(solve(A, v));
}

function allItems(n) {
  return Int32Array.from({ length: n }, (_, item) => item);
}

/** ridge = reg max(count + others / alpha, 1)^reg_exponent */
function ridgeOf({ alpha, reg, reg_exponent: exponent }, count, others) {
  return exponent === 0 ? reg : reg * Math.max(count + others / alpha, 1) ** exponent;
}

/** The sum of y y^T over some items, on and above the diagonal. */
function symmetricSum(itemRows, items, d) {
  const total = new Float64Array(d * d);
  for (const item of items) {
    const y = itemRows.subarray(item * d, (item + 1) * d);
    for (let c = 0; c < d; c++) for (let a = c; a < d; a++) total[c * d + a] += y[c] * y[a];
  }
  return total;
}

/** A^-1 v by Cholesky, A = U^T U. A holds its upper triangle; U replaces it. */
function solve(A, v) {
  const d = v.length;
  for (let r = 0; r < d; r++) {
    for (let f = 0; f < r; f++)
      for (let a = r; a < d; a++) A[r * d + a] -= A[f * d + r] * A[f * d + a];
    const root = Math.sqrt(A[r * d + r]);
    for (let a = r; a < d; a++) A[r * d + a] /= root;
    v[r] /= root;
    for (let a = r + 1; a < d; a++) v[a] -= v[r] * A[r * d + a];
  }
  for (let a = d - 1; a >= 0; a--) {
    for (let f = a + 1; f < d; f++) v[a] -= A[a * d + f] * v[f];
    v[a] /= A[a * d + a];
  }
  return v;
}
