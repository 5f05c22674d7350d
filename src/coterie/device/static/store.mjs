// What stays in this browser, in IndexedDB: likes, keys, the user's row, and a log of what was sent.

const NAME = "coterie-device";
const VERSION = 1;
/** Single values by name, such as the likes. */
const VALUES = "values";
/** Messages that were sent, oldest first. */
const SENT = "sent";

export class DeviceStore {
  constructor(database) {
    this.database = database;
  }

  static async open() {
    const request = indexedDB.open(NAME, VERSION);
    request.onupgradeneeded = () => {
      request.result.createObjectStore(VALUES);
      request.result.createObjectStore(SENT, { keyPath: "number", autoIncrement: true });
    };
    return new DeviceStore(await done(request));
  }

  /** The value of a name, or `missing`. */
  async get(name, missing = null) {
    const found = await done(this.#in(VALUES, "readonly").get(name));
    return found === undefined ? missing : found;
  }

  /** Write some values, all of them or none. */
  async put(values) {
    const transaction = this.database.transaction(VALUES, "readwrite");
    const into = transaction.objectStore(VALUES);
    for (const [name, value] of Object.entries(values)) into.put(value, name);
    await finished(transaction);
  }

  /** Log a message before it is sent, together with the values that go with it. */
  async putSent(entry, values) {
    const transaction = this.database.transaction([VALUES, SENT], "readwrite");
    const request = transaction.objectStore(SENT).add(entry);
    const into = transaction.objectStore(VALUES);
    for (const [name, value] of Object.entries(values)) into.put(value, name);
    await finished(transaction);
    return request.result;
  }

  /** Note how the gateway answered. */
  async putAnswer(number, answer) {
    const transaction = this.database.transaction(SENT, "readwrite");
    const sent = transaction.objectStore(SENT);
    sent.put({ ...(await done(sent.get(number))), answer });
    await finished(transaction);
  }

  async sent() {
    return done(this.#in(SENT, "readonly").getAll());
  }

  /** Delete everything except likes: the browser leaves its federation. */
  async leave(kept) {
    const transaction = this.database.transaction([VALUES, SENT], "readwrite");
    transaction.objectStore(VALUES).clear();
    transaction.objectStore(SENT).clear();
    for (const [name, value] of Object.entries(kept))
      transaction.objectStore(VALUES).put(value, name);
    await finished(transaction);
  }

  #in(store, mode) {
    return this.database.transaction(store, mode).objectStore(store);
  }
}

function done(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

function finished(transaction) {
  return new Promise((resolve, reject) => {
    transaction.oncomplete = () => resolve();
    transaction.onabort = () => reject(transaction.error);
  });
}
