// The gateway's side of the protocol, as the page calls it. Requests after enrolment are signed.

import { sign } from "./signing.mjs";

/** Seconds for which a request for a message may wait. */
const WAIT_SECONDS = 20;
/** Where the gateway serves the page. */
const FOLDER = "/device/";
const NOTHING = new Uint8Array(0);

/** A request that the gateway refused, with its reason. */
export class Refused extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

export class Gateway {
  #network;
  #lastTime = 0;

  /** @param {import("./network.mjs").Network} network */
  constructor(network) {
    this.#network = network;
  }

  async terms() {
    return json(await this.#get("terms"));
  }

  async catalogue() {
    return json(await this.#get("catalogue"));
  }

  /** Enrol with a one-time code. @returns {{device: string, user: number}} */
  async enrol(code, publicKey, name) {
    const body = new TextEncoder().encode(JSON.stringify({ code, public_key: publicKey, name }));
    const headers = { "Content-Type": "application/json" };
    return json(await this.#network.fetch(`${FOLDER}enrol`, { method: "POST", headers, body }));
  }

  /**
   * The server's message for this device; `bytes` is null if there is none yet.
   * @returns {{bytes: Uint8Array | null, isFinished: boolean,
   *            place: {run: string, round: string, attempt: string}}}
   */
  async message(identity, signal) {
    const target = `${FOLDER}message?wait=${WAIT_SECONDS}`;
    const response = await this.#signed(identity, "GET", target, NOTHING, {}, signal);
    const place = {
      run: response.headers.get("Coterie-Run") ?? "",
      round: response.headers.get("Coterie-Round") ?? "",
      attempt: response.headers.get("Coterie-Attempt") ?? "",
    };
    const bytes = response.status === 204 ? null : response.bytes;
    return { bytes, isFinished: response.headers.get("Coterie-State") === "finished", place };
  }

  /** Send an update. @returns {{bytes: number, sha256: string}} what the gateway received */
  async update(identity, bytes, place) {
    const response = await this.#signed(identity, "POST", `${FOLDER}update`, bytes, {
      "Content-Type": "application/octet-stream",
      "Coterie-Run": place.run,
      "Coterie-Round": place.round,
      "Coterie-Attempt": place.attempt,
    });
    return json(response);
  }

  /** The item table for recommendations. */
  async model(identity) {
    return (await this.#signed(identity, "GET", `${FOLDER}model`, NOTHING, {})).bytes;
  }

  async #get(name) {
    return this.#network.fetch(`${FOLDER}${name}`);
  }

  async #signed(identity, method, target, body, headers, signal) {
    const time = String(this.#newTime());
    const signature = await sign(identity.keys, method, target, time, body);
    const signed = {
      ...headers,
      "Coterie-Device": identity.device,
      "Coterie-Time": time,
      "Coterie-Signature": signature,
    };
    const options = { method, headers: signed, signal };
    if (method === "POST") options.body = body;
    return accepted(await this.#network.fetch(target, options));
  }

  /** Milliseconds since 1970, never the same twice: the gateway refuses repeats. */
  #newTime() {
    this.#lastTime = Math.max(Date.now(), this.#lastTime + 1);
    return this.#lastTime;
  }
}

function json(response) {
  return JSON.parse(new TextDecoder().decode(accepted(response).bytes));
}

/** The response, or Refused with the gateway's own words. */
function accepted(response) {
  if (response.status < 400) return response;
  const text = new TextDecoder().decode(response.bytes.subarray(0, 2000));
  throw new Refused(response.status, reason(text) || `the gateway replied ${response.status}`);
}

function reason(text) {
  try {
    const told = JSON.parse(text);
    return String(told.error ?? "");
  } catch {
    return text;
  }
}
