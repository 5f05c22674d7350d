// Taking part in rounds: fetch a message, train, ask for consent, send or decline, log.

import { clientOf } from "./clients.mjs";
import { plural, roundName } from "./dom.mjs";
import { Refused } from "./gateway.mjs";
import { writeRefusal } from "./messages.mjs";
import { digest } from "./signing.mjs";

const FIRST_PAUSE_MS = 1000;
const LONGEST_PAUSE_MS = 60_000;
const UNAUTHORISED = 401;
const FORBIDDEN = 403;

/** What the user decided about a message. CHANGED: likes or the rate changed, so train again. */
export const SEND = "send";
export const DECLINE = "decline";
export const CHANGED = "changed";

export class Participation {
  /** The message that was declined last: it is not shown again if the gateway missed that. */
  #declined = "";

  /**
   * @param {Object} parts
   * @param parts.terms of the federation
   * @param parts.gateway
   * @param parts.store
   * @param parts.trainer
   * @param {() => Promise<Object>} parts.device what the device has now: see fpl_client.mjs
   * @param {(trained, place) => Promise<string>} parts.consent shows a message, and what is decided
   * @param {(text: string, isWrong?: boolean) => void} parts.report tells the user how it goes
   * @param {() => Promise<void>} parts.onSent called after every message that was sent
   * @param {() => Promise<void>} parts.onFinished called when training is over
   */
  constructor(parts) {
    Object.assign(this, parts);
  }

  /** Take part until `signal` is aborted, training is over or the device is revoked. */
  async run(signal) {
    let pause = FIRST_PAUSE_MS;
    while (!signal.aborted) {
      try {
        const { identity } = await this.device();
        const message = await this.gateway.message(identity, signal);
        pause = FIRST_PAUSE_MS;
        if (message.isFinished) return await this.onFinished();
        if (!message.bytes) this.report("Waiting for the next round.");
        else if (placeText(message.place) === this.#declined) await this.#decline(message);
        else await this.#answer(message, signal);
      } catch (error) {
        if (signal.aborted) return undefined;
        this.report(error.message, true);
        if (isFinal(error)) return undefined;
        await sleep(pause, signal);
        pause = Math.min(2 * pause, LONGEST_PAUSE_MS);
      }
    }
    return undefined;
  }

  async #answer(message, signal) {
    const { bytes, place } = message;
    const name = roundName(place);
    this.report(`This browser trains for ${name}.`);
    let decision = CHANGED;
    let trained = null;
    while (decision === CHANGED && !signal.aborted) {
      const device = await this.device();
      trained = await this.trainer.train(this.terms, device, bytes);
      this.report(`The message of ${name} is ready.`);
      decision = await this.consent(trained, place);
    }
    if (signal.aborted) return;
    if (decision === SEND) {
      await this.#send(trained, place);
      return;
    }
    this.#declined = placeText(place);
    await this.#decline(message);
  }

  /** Send that this device declines, so that the round does not wait for it. */
  async #decline({ bytes: messageBytes, place }) {
    const { identity } = await this.device();
    const bytes = writeRefusal(messageBytes, clientOf(this.terms).updateSizes(this.terms.settings));
    const entry = {
      run: place.run,
      round: place.round,
      sha256: await digest(bytes),
      attempt: place.attempt,
      time: Date.now(),
      bytes,
      rows: 0,
      isDeclined: true,
      answer: "no answer",
    };
    await this.#deliver(identity, entry, place, {});
    this.report(`You declined ${roundName(place)}. The page asks again in the next round.`);
  }

  async #send(trained, place) {
    const { identity, pi, lastSent } = await this.device();
    const sha256 = await digest(trained.bytes);
    const sent = { run: place.run, round: place.round, sha256 };
    // The same bytes again tell nothing new.
    const isRepeat = lastSent !== null && JSON.stringify(lastSent) === JSON.stringify(sent);
    const entry = {
      ...sent,
      attempt: place.attempt,
      time: Date.now(),
      bytes: trained.bytes,
      rows: trained.update.items.length,
      isDeclined: false,
      pi,
      answer: "no answer",
    };
    const evidence = isRepeat ? {} : { evidence: trained.evidence };
    await this.#deliver(identity, entry, place, {
      state: trained.state,
      user: trained.user,
      lastSent: sent,
      ...evidence,
    });
    this.report(`${plural(trained.bytes.length, "byte")} were sent for ${roundName(place)}.`);
  }

  /** Log what is sent together with the values that go with it, send it, and log the answer. */
  async #deliver(identity, entry, place, values) {
    const number = await this.store.putSent(entry, values);
    try {
      const receipt = await this.gateway.update(identity, entry.bytes, place);
      const isSame = receipt.sha256 === entry.sha256 && receipt.bytes === entry.bytes.length;
      await this.store.putAnswer(number, isSame ? "received" : "received other bytes");
    } catch (error) {
      await this.store.putAnswer(number, error.message);
      throw error;
    } finally {
      await this.onSent();
    }
  }
}

function placeText({ run, round, attempt }) {
  return `${run} ${round} ${attempt}`;
}

/** Whether asking again is in vain. */
function isFinal(error) {
  return error instanceof Refused && [UNAUTHORISED, FORBIDDEN].includes(error.status);
}

/** Wait, or less if `signal` is aborted. */
function sleep(milliseconds, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    });
  });
}
