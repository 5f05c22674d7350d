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
    return scorer;
  }

  forHistory(history, n = 10) {
    const own = [...new Set(history.map((item) => find(this.about.items, item)))];
    own.sort((i, j) => i - j);
    return this.best(own, own, n);
  }

  forUser(user, n = 10) {
    const k = find(this.about.users, user);
    const of = (items, offsets) => items.subarray(offsets[k], offsets[k + 1]);
    const history = of(this.history_items, this.history_offsets);
    const seen = of(this.seen_items, this.seen_offsets);
    return this.about.not_served.includes(k) ? [] : this.best(history, seen, n);
  }

  best(history, seen, n) {
    const n_items = this.about.items.length;
    const scores = new Float32Array(n_items);
    for (const j of history) { // row j: what item j adds to the scores of others
      const begin = this.columns ? this.offsets[j] : j * n_items;
      const end = this.columns ? this.offsets[j + 1] : begin + n_items;
      for (let at = begin; at < end; at++)
        scores[this.columns ? this.columns[at] : at - begin] += this.weights[at];
    }
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
