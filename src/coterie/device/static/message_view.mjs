// Exactly what would be sent, decoded from the bytes themselves, and what an attacker infers.

import { byId, download, make, plural, roundName, short, size, tableRow, whole } from "./dom.mjs";
import { dequantise } from "./fixed_point.mjs";
import { CHANGED, DECLINE, SEND } from "./participation.mjs";

const MOST_FOUND = 8;

export class MessageView {
  #decide = () => {};

  /**
   * @param {{id: string, title: string}[]} items
   * @param {string} reveals what everybody should know before a message is sent; may be empty
   */
  constructor(items, reveals) {
    this.items = items;
    byId("reveals").textContent = reveals;
    byId("reveals").hidden = !reveals;
    byId("send").addEventListener("click", () => this.#decide(SEND));
    byId("decline").addEventListener("click", () => this.#decide(DECLINE));
    byId("save-bytes").addEventListener("click", () => this.#save());
  }

  /** Show a message and wait for a decision; one that is agreed to in advance is shown as well. */
  async consent(trained, place, history, isAgreed) {
    this.trained = trained;
    this.place = place;
    this.#show(trained, place, history);
    if (isAgreed) {
      this.#close("This message is sent: you agreed to all messages of this federation.");
      return SEND;
    }
    byId("consent").hidden = false;
    byId("waiting").hidden = false;
    byId("waiting").textContent = `The message of ${roundName(place)} waits for your decision`;
    byId("decided").textContent = "Nothing has been sent yet.";
    const decision = await new Promise((resolve) => {
      this.#decide = resolve;
    });
    this.#decide = () => {};
    if (decision === SEND) this.#close("You agreed to send this message.");
    if (decision === DECLINE)
      this.#close("This message was not sent. The server receives that you declined, and no rows.");
    return decision;
  }

  /** Likes or the rate changed: an open message is made anew. */
  changed() {
    this.#decide(CHANGED);
  }

  /** The federation was left, or paused: an open message is not sent. */
  abandon() {
    this.#decide(DECLINE);
  }

  #close(text) {
    byId("consent").hidden = true;
    byId("waiting").hidden = true;
    byId("decided").textContent = text;
  }

  #show({ update, alone, together, evidence }, place, { positives }) {
    const liked = new Set(positives);
    const own = Array.from(update.items).filter((item) => liked.has(item));
    byId("message").hidden = false;
    byId("message-title").textContent = `The message of ${roundName(place)}`;
    byId("fact-rows").textContent = whole(update.items.length);
    byId("fact-bytes").textContent = whole(update.bytes);
    byId("fact-likes").textContent = `${own.length} of ${positives.length}`;
    this.#showAttackers(alone, together, evidence.rounds);
    this.#showRows(update, liked);
    byId("arrays").replaceChildren(
      ...update.arrays.map(({ name, dtype, shape, bytes }) =>
        tableRow([name, dtype, `[${shape.join(", ")}]`, size(bytes)]),
      ),
    );
  }

  #showAttackers(alone, together, nMessages) {
    byId("n-messages").textContent =
      nMessages > 1 ? `All ${whole(nMessages)} messages together` : "All messages together";
    byId("attackers").replaceChildren(
      ...alone.map((one, n) => {
        const name = make(
          "td",
          {},
          make("strong", { textContent: one.name }),
          make("span", { className: "note", textContent: one.uses }),
        );
        return make("tr", {}, name, this.#claimCell(one), this.#claimCell(together[n]));
      }),
    );
    const worst = worstOf(together);
    const titles = worst.found.slice(0, MOST_FOUND).map((item) => short(this.items[item].title));
    const more = worst.found.length - titles.length;
    byId("worst").textContent = worst.found.length
      ? `${worst.name} would be right about ${titles.join("; ")}${more > 0 ? `; ${more} more` : ""}.`
      : "No attacker would be right about any of your likes.";
  }

  #showRows(update, liked) {
    const { items, itemRows, width } = update;
    byId("rows").replaceChildren(
      ...Array.from(items, (item, r) => {
        const row = Array.from(itemRows.subarray(r * width, (r + 1) * width), dequantise);
        return tableRow([
          this.items[item].title,
          ...(width ? [signed(row[width - 1]), Math.hypot(...row.slice(0, -1)).toFixed(4)] : []),
          liked.has(item) ? "you like it" : "drawn at random",
        ]);
      }),
    );
    // Items without rows are likes, and their receiver knows that.
    byId("row-bias").hidden = !width;
    byId("row-length").hidden = !width;
    byId("row-note").textContent = width ? "Only you know" : "You and the server know";
    byId("rows-summary").textContent = `All ${plural(items.length, "row")} of this message`;
  }

  /** Claims and how many are right, beside what as many claims at random would get right. */
  #claimCell({ claims, hits, liked }) {
    if (!claims) return make("td", { textContent: "claims nothing" });
    const byChance = (claims * liked) / this.items.length;
    const share = make("meter", {
      min: 0,
      max: 1,
      low: 0.33,
      high: 0.66,
      optimum: 0,
      value: hits / claims,
      "aria-label": "share of claims that are right",
    });
    return make(
      "td",
      {},
      make("span", { textContent: `${whole(hits)} right of ${plural(claims, "claim")}` }),
      share,
      make("span", { className: "note", textContent: `${byChance.toFixed(1)} by chance` }),
    );
  }

  #save() {
    const name = `round-${this.place.round}.coterie`;
    download(this.trained.bytes, name, "application/octet-stream");
  }
}

/** The attacker that finds most likes, with the fewest claims. */
function worstOf(claims) {
  return claims.reduce((worst, each) => {
    const isWorse = each.hits / Math.max(each.claims, 1) > worst.hits / Math.max(worst.claims, 1);
    return isWorse ? each : worst;
  });
}

function signed(x) {
  return `${x < 0 ? "−" : "+"}${Math.abs(x).toFixed(4)}`;
}
