"""Tables that a reader can sort by a click; without scripts they stay as they are."""

from __future__ import annotations

SORTABLE = "sortable"
"""The kind of a table that the script finds."""

SCRIPT = """<script>
addEventListener("DOMContentLoaded", () => {
  const value = (row, column) => row.cells[column].textContent.trim();
  const number = (text) => {
    const found = text.replaceAll(",", "").replace("\\u2212", "-").match(/^-?[0-9.]+(e-?[0-9]+)?/);
    return found ? Number(found[0]) : null;
  };
  const compare = (one, other) => {
    const [first, second] = [number(one), number(other)];
    if (first !== null && second !== null) return first - second;
    if (first !== null || second !== null) return first === null ? 1 : -1;
    return one.localeCompare(other);
  };
  for (const table of document.querySelectorAll(".sortable table")) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.textContent = head.textContent;
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const descending = head.getAttribute("aria-sort") === "ascending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", descending ? "descending" : "ascending");
        const rows = [...table.tBodies[0].rows];
        rows.sort((a, b) => compare(value(a, column), value(b, column)) * (descending ? -1 : 1));
        table.tBodies[0].append(...rows);
      });
    });
  }
});
</script>"""
