// The device's key pair, and signatures of requests. The private key cannot be read, not even here.

const ALGORITHM = { name: "ECDSA", namedCurve: "P-256" };
const SIGNATURE = { name: "ECDSA", hash: "SHA-256" };

/** A key pair whose private key WebCrypto never hands out. */
export async function makeKeys() {
  return crypto.subtle.generateKey(ALGORITHM, false, ["sign", "verify"]);
}

/** The public key as it is enrolled: raw bytes in base64url. */
export async function publicKeyText(keys) {
  return base64url(new Uint8Array(await crypto.subtle.exportKey("raw", keys.publicKey)));
}

/** The signature over method, path with query, time and SHA-256 of the body. */
export async function sign(keys, method, target, time, body) {
  const text = [method, target, time, await digest(body)].join("\n");
  const signed = await crypto.subtle.sign(
    SIGNATURE,
    keys.privateKey,
    new TextEncoder().encode(text),
  );
  return base64url(new Uint8Array(signed));
}

/** SHA-256 in hexadecimal digits. */
export async function digest(bytes) {
  const found = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return Array.from(found, (x) => x.toString(16).padStart(2, "0")).join("");
}

export function base64url(bytes) {
  const text = btoa(String.fromCharCode(...bytes));
  return text.replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}
