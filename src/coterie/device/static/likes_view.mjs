// Search the catalogue, pick likes, mark private ones, load a CSV file. All of it stays here.

import { MOST_CSV_BYTES, readLikes } from "./csv.mjs";
import { byId, make, plural, short, size, toggle } from "./dom.mjs";

const MOST_RESULTS = 12;
const MOST_UNKNOWN = 3;

export class LikesView {
  /**
   * @param {{id: string, title: string}[]} items
   * @param {Map<number, boolean>} likes by item index whether it is private
   * @param {() => Promise<void>} onChange called after every change of `likes`
   */
  constructor(items, likes, onChange) {
    this.items = items;
    this.likes = likes;
    this.onChange = onChange;
    this.lowerTitles = items.map(({ title }) => title.toLowerCase());
    byId("search").addEventListener("input", () => this.#showResults());
    byId("csv").addEventListener("change", (event) => this.#load(event.target));
    byId("likes-part").hidden = false;
    this.#show();
  }

  /** What a client trains on. */
  history() {
    const positives = Int32Array.from(this.likes.keys()).sort();
    const hidden = Uint8Array.from(positives, (item) => (this.likes.get(item) ? 1 : 0));
    return { positives, hidden, seen: positives };
  }

  #show() {
    this.#showResults();
    this.#showLikes();
  }

  #showResults() {
    const wanted = byId("search").value.trim().toLowerCase();
    const found = [];
    if (wanted)
      for (let item = 0; item < this.items.length && found.length <= MOST_RESULTS; item++)
        if (this.lowerTitles[item].includes(wanted)) found.push(item);
    const shown = found.slice(0, MOST_RESULTS);
    byId("results").replaceChildren(...shown.map((item) => make("li", {}, this.#result(item))));
    const more = found.length > MOST_RESULTS ? " There are more: type more of the title." : "";
    byId("found").textContent = wanted ? `${plural(shown.length, "title")}.${more}` : "";
  }

  #result(item) {
    const { title } = this.items[item];
    const isLiked = this.likes.has(item);
    return toggle(title, isLiked, () => {
      if (isLiked) this.likes.delete(item);
      else this.likes.set(item, false);
      return this.#changed();
    });
  }

  #showLikes() {
    const chosen = [...this.likes.keys()].sort((a, b) => a - b);
    const nPrivate = chosen.filter((item) => this.likes.get(item)).length;
    byId("n-likes").textContent = `${plural(chosen.length, "like")}, ${nPrivate} private`;
    byId("likes").replaceChildren(...chosen.map((item) => this.#like(item)));
    byId("no-likes").hidden = chosen.length > 0;
  }

  #like(item) {
    const { title } = this.items[item];
    const isPrivate = this.likes.get(item);
    const hide = toggle(
      "Private",
      isPrivate,
      () => {
        this.likes.set(item, !isPrivate);
        return this.#changed();
      },
      `Private: ${title}`,
    );
    const remove = make("button", {
      type: "button",
      className: "quiet",
      textContent: "Remove",
      "aria-label": `Remove ${title}`,
      onclick: () => {
        this.likes.delete(item);
        return this.#changed();
      },
    });
    return make("li", {}, make("span", { className: "title", textContent: title }), hide, remove);
  }

  async #load(input) {
    const [file] = input.files;
    if (!file) return;
    const note = byId("csv-note");
    if (file.size > MOST_CSV_BYTES) {
      note.textContent =
        `${file.name} has ${size(file.size)}; expected at most ${size(MOST_CSV_BYTES)}. ` +
        "Choose a smaller file.";
      return;
    }
    const { found, unknown } = readLikes(await file.text(), this.items);
    for (const item of found) if (!this.likes.has(item)) this.likes.set(item, false);
    note.textContent = `${file.name}: ${resultOf(found, unknown)}`;
    input.value = "";
    await this.#changed();
  }

  async #changed() {
    const label = document.activeElement?.getAttribute("aria-label");
    this.#show();
    // The lists are made anew; the button that was pressed keeps the focus.
    const again = label && document.querySelector(`button[aria-label="${CSS.escape(label)}"]`);
    if (again) again.focus();
    await this.onChange();
  }
}

/** What was found in a file, in words. Cells of a file may be anything, and of any length. */
function resultOf(found, unknown) {
  const examples = unknown.slice(0, MOST_UNKNOWN).map((cell) => short(printable(cell)));
  if (!found.length)
    return (
      (unknown.length
        ? `none of its ${plural(unknown.length, "row")} is in the catalogue (${examples.join(", ")})`
        : "it has no rows") +
      "; expected a column item_id or title, with ids or titles of this catalogue. " +
      "Choose another file."
    );
  const rest = unknown.length
    ? ` ${plural(unknown.length, "row")} not in the catalogue: ${examples.join(", ")}.`
    : "";
  return `${plural(found.length, "item")} found.${rest}`;
}

function printable(text) {
  return text.replace(/[\p{Cc}\ufffd]+/gu, "?");
}
