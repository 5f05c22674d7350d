// The device page: a client of a federation. It wires the parts; each is in a file of its own.

import { clientOf } from "./clients.mjs";
import { byId, make, plural, size } from "./dom.mjs";
import { Gateway } from "./gateway.mjs";
import { LikesView } from "./likes_view.mjs";
import { LogView } from "./log_view.mjs";
import { MessageView } from "./message_view.mjs";
import { Network } from "./network.mjs";
import { Participation } from "./participation.mjs";
import { RecommendView } from "./recommend_view.mjs";
import { makeKeys, publicKeyText } from "./signing.mjs";
import { DeviceStore } from "./store.mjs";
import { checkCatalogue, checkTerms, proposedRate, secretSeed, simulatedSeed } from "./terms.mjs";
import { Trainer } from "./trainer.mjs";

/** Only one tab takes part. */
const LOCK = "coterie-device";
/** In the page's address: draw as the simulation does, which a server can repeat. */
const SIMULATED = new URLSearchParams(location.search).get("draws") === "simulated";

class DevicePage {
  #stop = null;
  /** The terms are open for those who decide whether to join, and folded afterwards. */
  #wasJoined = null;

  constructor(store, network, gateway, terms, items) {
    this.store = store;
    this.network = network;
    this.gateway = gateway;
    this.terms = terms;
    this.client = clientOf(terms);
    this.items = items;
    this.trainer = new Trainer();
  }

  async start() {
    const likes = await this.#storedLikes();
    this.pi = await this.store.get("pi", proposedRate(this.terms));
    this.likes = new LikesView(this.items, likes, () => this.#likesChanged());
    this.message = new MessageView(this.items, this.client.reveals);
    this.log = new LogView(this.store);
    this.recommendations = new RecommendView(this.items, this.network, {
      stored: () => this.store.get("model"),
      fetch: () => this.#fetchModel(),
      recommend: async (model, n) =>
        this.trainer.recommend(this.terms, await this.#device(), model, n),
    });
    this.#showTerms();
    this.#listen();
    await this.#show();
    if (await this.store.get("takesPart", false)) await this.#takePart();
  }

  // What is on the page

  #showTerms() {
    const { terms } = this;
    byId("federation").textContent = terms.name;
    byId("heading").textContent = this.client.heading;
    byId("with-rate").hidden = !this.client.hasRate;
    byId("without-rate").hidden = this.client.hasRate;
    byId("step-rate").hidden = !this.client.hasRate;
    const facts = [
      ["Federation", terms.name],
      ["Algorithm", terms.algorithm],
      ["Items", terms.items.toLocaleString("en")],
      ["Rounds", String(terms.rounds ?? "")],
      ["Messages", "plain: the gateway and the server can read every message. Secure aggregation would " +
        "hide them; this page has no client of its stages"],
      ["Run", terms.run],
      ["Fingerprint", terms.fingerprint ?? ""],
    ].filter(([, value]) => value);
    byId("terms").replaceChildren(
      ...facts.flatMap(([name, value]) => [
        make("dt", { textContent: name }),
        make("dd", { textContent: value }),
      ]),
    );
    byId("simulated").hidden = !SIMULATED;
  }

  #listen() {
    byId("rate").addEventListener("input", () => this.#rateMoved());
    byId("rate").addEventListener("change", () => this.#rateChanged());
    byId("join").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#join();
    });
    byId("take-part").addEventListener("click", () => this.#takePart());
    byId("pause").addEventListener("click", () => this.#pause());
    byId("leave").addEventListener("click", () => byId("leave-dialog").showModal());
    byId("leave-dialog").addEventListener("close", (event) => {
      if (event.target.returnValue === "leave") this.#leave();
    });
    byId("send-all").addEventListener("click", () => this.#agree());
    byId("stop-agreeing").addEventListener("click", () => this.#stopAgreeing());
  }

  async #show() {
    const identity = await this.#identity();
    const takesPart = this.#stop !== null;
    byId("rate").value = String(Math.round(this.pi * 100));
    this.#rateMoved();
    byId("not-joined").hidden = identity !== null;
    byId("joined").hidden = identity === null;
    byId("steps").hidden = identity !== null;
    if ((identity !== null) !== this.#wasJoined) {
      this.#wasJoined = identity !== null;
      byId("about-federation").open = !this.#wasJoined;
    }
    byId("device-name").textContent = identity ? identity.device : "";
    const isFinished = (await this.store.get("finishedRun")) === this.terms.run;
    byId("take-part").hidden = takesPart || isFinished;
    byId("take-part").disabled = !this.likes.likes.size;
    byId("likes-first").hidden = this.likes.likes.size > 0;
    byId("pause").hidden = !takesPart;
    byId("agreed").hidden = isFinished || !(await this.#isAgreed());
    await this.log.show();
    const hasRow = this.client.needsRow
      ? (await this.store.get("state")) !== null
      : identity !== null && this.likes.likes.size > 0;
    await this.recommendations.show(identity !== null, hasRow);
  }

  #report(text, isWrong = false) {
    byId("status").textContent = text;
    byId("status").classList.toggle("wrong", isWrong);
  }

  // Likes and the rate

  /** Likes are stored by id: indices may differ in another federation. */
  async #storedLikes() {
    const stored = await this.store.get("likes", new Map());
    const index = new Map(this.items.map(({ id }, item) => [id, item]));
    const known = [...stored].filter(([id]) => index.has(id));
    return new Map(known.map(([id, isPrivate]) => [index.get(id), isPrivate]));
  }

  async #likesChanged() {
    const likes = [...this.likes.likes].map(([item, isPrivate]) => [this.items[item].id, isPrivate]);
    await this.store.put({ likes: new Map(likes) });
    if (!this.likes.likes.size) await this.#pause();
    this.message.changed();
    await this.#show();
  }

  #rateMoved() {
    const rate = Number(byId("rate").value) / 100;
    byId("rate-value").textContent = `π = ${rate.toFixed(2)}`;
    byId("rate-words").textContent = rateWords(rate);
  }

  async #rateChanged() {
    this.pi = Number(byId("rate").value) / 100;
    await this.store.put({ pi: this.pi });
    this.message.changed();
  }

  // The federation

  /** Who this device is in this run; null before it joined. */
  async #identity() {
    const identity = await this.store.get("identity");
    return identity?.run === this.terms.run ? identity : null;
  }

  async #join() {
    const button = byId("join-button");
    button.disabled = true;
    byId("join-note").textContent = "";
    try {
      const keys = await makeKeys();
      const code = byId("code").value.trim();
      const told = await this.gateway.enrol(code, await publicKeyText(keys), byId("name").value);
      const seed = SIMULATED ? simulatedSeed(this.terms) : secretSeed();
      const identity = { device: told.device, keys, seed, run: this.terms.run };
      await this.store.put({ identity, user: told.user ?? null, state: null, evidence: null });
      byId("code").value = "";
      if (this.likes.likes.size) await this.#takePart();
    } catch (error) {
      byId("join-note").textContent = error.message;
    } finally {
      button.disabled = false;
      await this.#show();
    }
  }

  /** Delete keys, the row and the log. Likes stay. */
  async #leave() {
    await this.#pause();
    await this.store.leave({ likes: await this.store.get("likes", new Map()), pi: this.pi });
    byId("message").hidden = true;
    byId("best").replaceChildren();
    byId("silence").textContent = "";
    this.#report("You left the federation. Its server keeps what it received.");
    await this.#show();
  }

  // Rounds

  /** What this device has now. */
  async #device() {
    const identity = await this.store.get("identity");
    return {
      identity,
      seed: identity.seed,
      user: await this.store.get("user"),
      history: this.likes.history(),
      pi: this.pi,
      state: await this.store.get("state"),
      evidence: await this.store.get("evidence"),
      lastSent: await this.store.get("lastSent"),
    };
  }

  async #takePart() {
    if (this.#stop || !(await this.#identity()) || !this.likes.likes.size) return;
    const stop = new AbortController();
    this.#stop = stop;
    await this.store.put({ takesPart: true });
    this.#report("Waiting for the next round.");
    await this.#show();
    // Rounds go on after this call.
    navigator.locks.request(LOCK, { ifAvailable: true }, async (lock) => {
      if (lock) await this.#rounds(stop.signal);
      else this.#report("Another tab of this browser takes part. Use that one.", true);
      if (this.#stop === stop) this.#stop = null;
      await this.#show();
    });
  }

  #rounds(signal) {
    const participation = new Participation({
      terms: this.terms,
      gateway: this.gateway,
      store: this.store,
      trainer: this.trainer,
      device: () => this.#device(),
      consent: async (trained, place) =>
        this.message.consent(trained, place, this.likes.history(), await this.#isAgreed()),
      report: (text, isWrong) => this.#report(text, isWrong),
      onSent: () => this.#show(),
      onFinished: () => this.#finish(),
    });
    return participation.run(signal);
  }

  async #finish() {
    await this.store.put({ takesPart: false, finishedRun: this.terms.run });
    await this.recommendations.fetchTable();
    this.#report("Training is over. Your recommendations need no network any more.");
  }

  async #pause() {
    if (!this.#stop) return;
    this.#stop.abort();
    this.#stop = null;
    this.message.abandon();
    await this.store.put({ takesPart: false });
    this.#report("Paused. This device takes no part in rounds.");
    await this.#show();
  }

  // Consent for all messages of this run

  async #isAgreed() {
    return (await this.store.get("agreedRun")) === this.terms.run;
  }

  async #agree() {
    await this.store.put({ agreedRun: this.terms.run });
    await this.#show();
    byId("send").click();
  }

  async #stopAgreeing() {
    await this.store.put({ agreedRun: null });
    await this.#show();
  }

  async #fetchModel() {
    const model = await this.gateway.model(await this.#identity());
    await this.store.put({ model });
    await this.#show();
    return model;
  }
}

function rateWords(rate) {
  if (rate === 0)
    return "No row of a like is sent. The items that you never send still tell something.";
  if (rate === 1) return "The row of every like that training draws is sent, except private ones.";
  const share = `${Math.round(rate * 100)} %`;
  return `When training draws a like, its row is sent with a chance of ${share}; private ones never.`;
}

function showNetwork({ requests, open, sentBytes, receivedBytes }) {
  const now = open ? `${open} open` : "silent";
  byId("network").textContent =
    `${plural(requests, "request")}, ${size(sentBytes)} up, ${size(receivedBytes)} down; now ${now}`;
}

/** The code of an invitation's address (#code=...), which then leaves the address bar. */
function takeCode() {
  const code = new URLSearchParams(location.hash.slice(1)).get("code");
  if (!code) return;
  byId("code").value = code;
  history.replaceState(null, "", location.pathname + location.search);
}

function fail(text) {
  byId("fault").textContent = text;
  byId("fault").hidden = false;
}

async function begin() {
  if (!isSecureContext) {
    fail(`The address is ${location.origin}; a device needs HTTPS. Open the page with https://.`);
    return;
  }
  takeCode();
  const network = new Network();
  network.onChange(showNetwork);
  const gateway = new Gateway(network);
  try {
    const store = await DeviceStore.open();
    const terms = checkTerms(await gateway.terms());
    const items = checkCatalogue(await gateway.catalogue(), terms);
    await new DevicePage(store, network, gateway, terms, items).start();
    byId("page").hidden = false;
  } catch (error) {
    fail(error.message);
  }
}

await begin();
