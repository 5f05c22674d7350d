// A CSV file of one's own: which items of the catalogue it names.

/** Names of the column that has items, the most exact first. */
const ITEM_COLUMNS = ["item_id", "item", "movieid", "id", "title"];
export const MOST_CSV_BYTES = 20 * 2 ** 20;

/**
 * The items that a CSV file names by id or by title.
 *
 * Without a known column name in the first line, the first column counts, from the first line on.
 * @param {string} text
 * @param {{id: string, title: string}[]} items
 * @returns {{found: number[], unknown: string[]}} item indices without repeats, and other cells
 */
export function readLikes(text, items) {
  const rows = parseCsv(text);
  const names = (rows[0] ?? []).map((cell) => cell.trim().toLowerCase());
  const named = ITEM_COLUMNS.find((name) => names.includes(name));
  const column = named ? names.indexOf(named) : 0;
  const cells = (named ? rows.slice(1) : rows).map((row) => (row[column] ?? "").trim());
  const byId = new Map(items.map(({ id }, index) => [String(id), index]));
  const byTitle = new Map(items.map(({ title }, index) => [title.toLowerCase(), index]));
  const found = new Set();
  const unknown = [];
  for (const cell of cells.filter(Boolean)) {
    const index = byId.get(cell) ?? byTitle.get(cell.toLowerCase());
    if (index === undefined) unknown.push(cell);
    else found.add(index);
  }
  return { found: [...found].sort((a, b) => a - b), unknown };
}

/** Rows of cells (RFC 4180); commas, semicolons or tabs separate, whichever the first line has. */
export function parseCsv(text) {
  const source = text.replace(/^\ufeff/, "");
  const separator = separatorOf(source);
  const rows = [];
  let row = [];
  let cell = "";
  let isQuoted = false;
  for (let at = 0; at < source.length; at++) {
    const character = source[at];
    if (isQuoted) {
      const isDoubled = character === '"' && source[at + 1] === '"';
      if (isDoubled) at += 1;
      if (character === '"' && !isDoubled) isQuoted = false;
      else cell += character;
    } else if (character === '"' && !cell) {
      isQuoted = true;
    } else if (character === separator) {
      row.push(cell);
      cell = "";
    } else if (character === "\n") {
      rows.push([...row, cell]);
      row = [];
      cell = "";
    } else if (character !== "\r") {
      cell += character;
    }
  }
  if (cell || row.length) rows.push([...row, cell]);
  return rows;
}

function separatorOf(source) {
  const line = source.split("\n", 1)[0];
  const counts = [",", ";", "\t"].map((mark) => ({ mark, n: line.split(mark).length }));
  return counts.reduce((most, each) => (each.n > most.n ? each : most)).mark;
}
