// Recommendations on the device: y = p . q_i + b_i, as in models/factors.py and evaluation/ranking.py.

/**
 * The k best unseen items, best first, ties in item order; fewer if fewer are left.
 * @param {Float32Array} row the user's row
 * @param {Float32Array} itemRows (items, d)
 * @param {Float32Array} itemBias (items,)
 * @param {Iterable<number>} seen
 * @returns {{item: number, score: number}[]}
 */
export function bestItems(row, itemRows, itemBias, seen, k) {
  const scores = scoreItems(row, itemRows, itemBias);
  const hidden = new Uint8Array(scores.length);
  for (const item of seen) hidden[item] = 1;
  const best = [];
  scores.forEach((score, item) => {
    if (hidden[item] || (best.length === k && score <= best[k - 1].score)) return;
    insert(best, { item, score });
    if (best.length > k) best.pop();
  });
  return best;
}

/** Scores of all items in single precision; an error if one is not finite. */
export function scoreItems(row, itemRows, itemBias) {
  const d = row.length;
  return itemBias.map((bias, item) => {
    let total = 0;
    for (let f = 0; f < d; f++) total += row[f] * itemRows[item * d + f];
    const score = Math.fround(Math.fround(total) + bias);
    if (!Number.isFinite(score))
      throw new RangeError(
        `the score of item ${item} is ${score}; expected finite scores. ` +
          "Training diverged: leave this federation.",
      );
    return score;
  });
}

/** Insert behind all entries that are not worse: earlier items stay ahead of ties. */
function insert(best, entry) {
  let at = best.length;
  while (at > 0 && best[at - 1].score < entry.score) at -= 1;
  best.splice(at, 0, entry);
}
