"use strict";
// Clicking a heading sorts the table by that column, ascending, then descending.

function key(row, place) {
  const cell = row.cells[place];
  return cell.dataset.value === undefined ? cell.textContent : Number(cell.dataset.value);
}

function compare(a, b) {
  return typeof a === "number" && typeof b === "number"
    ? a - b
    : String(a).localeCompare(String(b), "en", { numeric: true });
}

function sort(heading) {
  const table = heading.closest("table");
  const body = table.tBodies[0];
  const sign = heading.getAttribute("aria-sort") === "ascending" ? -1 : 1;
  const rows = [...body.rows].sort(
    (a, b) => sign * compare(key(a, heading.cellIndex), key(b, heading.cellIndex)));
  for (const other of table.querySelectorAll("th")) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", sign === 1 ? "ascending" : "descending");
  table.classList.add("sorted");
  body.append(...rows);
}

for (const button of document.querySelectorAll("table.sortable th button")) {
  button.addEventListener("click", () => sort(button.parentElement));
}

// Marks tables that are wider than their box as scrollable, and the side with more columns.
for (const box of document.querySelectorAll(".scroll")) {
  const look = () => {
    const beyond = box.scrollWidth - box.clientWidth;
    box.classList.toggle("wide", beyond > 1);
    box.classList.toggle("more", beyond - box.scrollLeft > 1);
  };
  box.addEventListener("scroll", look);
  new ResizeObserver(look).observe(box);
  new MutationObserver(look).observe(box, { childList: true, subtree: true });
}
