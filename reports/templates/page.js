"use strict";
// Tables can be read without this; it lets them be sorted and filtered.

const collator = new Intl.Collator(document.documentElement.lang, { numeric: true });
const EMPTY = "-";

function compare(a, b, isNumber) {
  if (!isNumber) return collator.compare(a, b);
  return parseFloat(a) - parseFloat(b);
}

function sortBy(table, heading) {
  const column = heading.cellIndex;
  const isNumber = heading.classList.contains("n");
  const wasAscending = heading.getAttribute("aria-sort") === "ascending";
  const direction = wasAscending ? -1 : 1;
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", wasAscending ? "descending" : "ascending");
  const body = table.tBodies[0];
  const keyed = Array.from(body.rows, (row) => [row.cells[column].textContent, row]);
  const filled = keyed.filter(([text]) => text !== EMPTY);
  const empty = keyed.filter(([text]) => text === EMPTY);
  filled.sort(([a], [b]) => direction * compare(a, b, isNumber));
  body.remove();  // or each row that moves is laid out
  body.append(...filled.concat(empty).map(([, row]) => row));
  table.append(body);
}

function filter(table, input, output) {
  const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const row of table.tBodies[0].rows) {
    row.text ??= Array.from(row.cells, (cell) => cell.textContent).join("\n").toLowerCase();
    row.hidden = !words.every((word) => row.text.includes(word));
    shown += row.hidden ? 0 : 1;
  }
  output.value = words.length ? `${shown} / ${table.tBodies[0].rows.length} ${output.dataset.shown}` : "";
}

for (const table of document.querySelectorAll("table.sortable")) {
  for (const heading of table.tHead.rows[0].cells) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    button.addEventListener("click", () => sortBy(table, heading));
    heading.append(button);
  }
  const input = document.getElementById(`${table.id}-filter`);
  const output = input.parentElement.querySelector("output");
  input.parentElement.hidden = false;
  input.addEventListener("input", () => filter(table, input, output));
}
