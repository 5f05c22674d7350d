// Recommends from this folder, which `coterie export` wrote. Needs no package.
//
//   const scorer = await Scorer.load((name) => fetch(`FOLDER/${name}`).then((r) => r.arrayBuffer()));
//   scorer.forHistory(["50", "172"], 10); // [[item, score], ...], best first
//   scorer.forUser("42", 10);             // if the folder has users
const TYPES = { "<f4": Float32Array, "<f8": Float64Array, "<i4": Int32Array };

export class Scorer {
  static async load(read) {
    const scorer = new Scorer();
    scorer.about = JSON.parse(new TextDecoder().decode(await read("manifest.json")));
    for (const [name, array] of Object.entries(scorer.about.arrays))
      scorer[name] = new TYPES[array.type](await read(`${name}.bin`));
    scorer.size = scorer.about.arrays.item_vectors.shape[1];
    return scorer;
  }

  forHistory(history, n = 10) {
    const own = [...new Set(history.map((item) => find(this.about.items, item)))];
    if (!own.length) return this.best(this.average, own, n);
    const { alpha, target, reg, others, exponent } = this.about.new_user;
    const [d, Y] = [this.size, this.item_vectors];
    const ridge = reg * Math.max(own.length + others, 1) ** exponent;
    const sum = (term) => own.reduce((total, i) => total + term(i * d), 0);
    const system = Array.from({ length: d }, (_, a) => Array.from({ length: d + 1 }, (_, b) =>
      b === d ? target * sum((i) => Y[i + a])
        : this.gram[a * d + b] + alpha * sum((i) => Y[i + a] * Y[i + b]) + (a === b ? ridge : 0)));
    return this.best(Float32Array.from(solve(system)), own, n);
  }

  forUser(user, n = 10) {
    const k = find(this.about.users, user);
    const seen = this.seen_items.subarray(this.seen_offsets[k], this.seen_offsets[k + 1]);
    return this.best(this.user_vectors.subarray(k * this.size, (k + 1) * this.size), seen, n);
  }

  best(vector, seen, n) {
    const scores = this.item_bias.map((bias, i) =>
      vector.reduce((total, x, a) => total + x * this.item_vectors[i * this.size + a], bias));
    const hidden = new Set(seen);
    const rest = [...scores.keys()].filter((i) => !hidden.has(i));
    return rest.sort((i, j) => scores[j] - scores[i]).slice(0, n)
      .map((i) => [this.about.items[i], scores[i]]);
  }
}

function find(ids, id) {
  const k = ids.findIndex((known) => String(known) === String(id));
  if (k < 0) throw new Error(`unknown id ${id}`);
  return k;
}

function solve(rows) { // Gaussian elimination; the system is positive definite
  rows.forEach((pivot, a) => rows.slice(a + 1).forEach((row) => {
    const factor = row[a] / pivot[a];
    for (let b = a; b < row.length; b++) row[b] -= factor * pivot[b];
  }));
  const x = new Float64Array(rows.length);
  for (let a = rows.length - 1; a >= 0; a--)
    x[a] = rows[a].slice(0, -1).reduce((rest, value, b) => b > a ? rest - value * x[b] : rest,
      rows[a].at(-1)) / rows[a][a];
  return x;
}
