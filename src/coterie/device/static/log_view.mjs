// The log: every message that left this browser, with its bytes.

import { byId, download, make, roundName, size, whole } from "./dom.mjs";

const MOST_SHOWN = 100;

export class LogView {
  /** @param {import("./store.mjs").DeviceStore} store */
  constructor(store) {
    this.store = store;
    byId("save-log").addEventListener("click", () => this.#save());
  }

  async show() {
    const sent = await this.store.sent();
    const bytes = sent.reduce((total, entry) => total + entry.bytes.length, 0);
    const nDeclined = sent.filter(({ isDeclined }) => isDeclined).length;
    byId("log-summary").textContent = sent.length
      ? `${whole(sent.length - nDeclined)} sent, ${whole(nDeclined)} declined, ${size(bytes)} in all`
      : "Nothing was sent.";
    byId("log-part").hidden = !sent.length;
    byId("log").replaceChildren(...sent.slice(-MOST_SHOWN).reverse().map(line));
  }

  /** Everything as JSON; bytes as hexadecimal digits. */
  async #save() {
    const sent = await this.store.sent();
    const told = sent.map((entry) => ({ ...entry, bytes: hexadecimal(entry.bytes) }));
    const text = JSON.stringify(told, null, 1);
    download(new TextEncoder().encode(text), "sent.json", "application/json");
  }
}

function line(entry) {
  const save = make("button", {
    type: "button",
    className: "quiet",
    textContent: "Save",
    "aria-label": `Save the bytes of ${roundName(entry)}`,
    onclick: () =>
      download(entry.bytes, `round-${entry.round}.coterie`, "application/octet-stream"),
  });
  return make(
    "tr",
    {},
    make("td", { textContent: whole(Number(entry.round) + 1) }),
    make("td", { textContent: new Date(entry.time).toLocaleTimeString("en-GB") }),
    make("td", { textContent: whole(entry.rows) }),
    make("td", { textContent: whole(entry.bytes.length) }),
    make("td", { textContent: answerOf(entry), className: "answer" }),
    make("td", { className: "wide" }, make("code", { textContent: entry.sha256.slice(0, 12), title: entry.sha256 })),
    make("td", {}, save),
  );
}

function answerOf({ isDeclined, answer }) {
  return isDeclined ? `declined, ${answer}` : answer;
}

function hexadecimal(bytes) {
  return Array.from(bytes, (x) => x.toString(16).padStart(2, "0")).join("");
}
