// Elements without markup in text: every string from outside becomes text, never HTML.

/** The element with an id. */
export function byId(id) {
  return document.getElementById(id);
}

/**
 * A new element. Properties are set as properties (`className`, `textContent`, `onclick`), those
 * with a hyphen as attributes (`aria-pressed`).
 */
export function make(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.includes("-")) made.setAttribute(name, value);
    else made[name] = value;
  }
  made.append(...children);
  return made;
}

/** A row of a table; cells are strings or elements. */
export function tableRow(cells, tag = "td") {
  return make("tr", {}, ...cells.map((cell) => make(tag, {}, cell)));
}

/** A button that is pressed or not. */
export function toggle(text, isPressed, onClick, label = text) {
  return make("button", {
    type: "button",
    className: "toggle",
    textContent: text,
    onclick: onClick,
    "aria-pressed": String(isPressed),
    "aria-label": label,
  });
}

/** Let the user save bytes as a file. */
export function download(bytes, name, type) {
  const address = URL.createObjectURL(new Blob([bytes], { type }));
  make("a", { href: address, download: name }).click();
  URL.revokeObjectURL(address);
}

export function whole(n) {
  return n.toLocaleString("en");
}

/** A number of bytes, as people read it. */
export function size(bytes) {
  if (bytes < 1000) return `${bytes} bytes`;
  if (bytes < 1e6) return `${(bytes / 1e3).toFixed(1)} kB`;
  return `${(bytes / 1e6).toFixed(1)} MB`;
}

const LONGEST_TITLE = 60;

/** A title within a sentence. */
export function short(title) {
  return title.length <= LONGEST_TITLE ? title : `${title.slice(0, LONGEST_TITLE - 1)}…`;
}

/** The name of a round: the first is round 1. */
export function roundName(place) {
  return `round ${whole(Number(place.round) + 1)}`;
}

export function plural(n, one, many = `${one}s`) {
  return `${whole(n)} ${n === 1 ? one : many}`;
}
