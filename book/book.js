"use strict";
// Rows sort by the column whose heading is clicked, up, then down, and are filtered by menus.
(function () {
  const book = document.currentScript.closest(".book");
  const body = book.querySelector("tbody");
  const menus = [...book.querySelectorAll("select")];
  const count = book.querySelector("output");

  // Cells by column: one that stands for several counts as each of them.
  function cell(row, column) {
    let place = 0;
    for (const each of row.cells) {
      place += each.colSpan;
      if (column < place) return each;
    }
    return null;
  }

  function key(row, column) {
    const found = cell(row, column);
    if (found.colSpan > 1) return null;
    return found.dataset.value === undefined ? found.textContent : Number(found.dataset.value);
  }

  // A row without a value comes last, whichever way the others go.
  function compare(a, b, sign) {
    if (a === null || b === null) return (a === null) - (b === null);
    if (typeof a === "number" && typeof b === "number") return a === b ? 0 : sign * (a < b ? -1 : 1);
    return sign * String(a).localeCompare(String(b), "en", { numeric: true });
  }

  function sort(heading) {
    const sign = heading.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    const place = heading.cellIndex;
    const rows = [...body.rows].sort((a, b) => compare(key(a, place), key(b, place), sign));
    for (const other of book.querySelectorAll("th")) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", sign === 1 ? "ascending" : "descending");
    body.append(...rows);
  }

  function filter() {
    let shown = 0;
    for (const row of body.rows) {
      row.hidden = menus.some(
        (menu) => menu.value && row.cells[menu.dataset.column].textContent !== menu.value);
      shown += !row.hidden;
    }
    count.textContent = `${shown} of ${body.rows.length} rows`;
  }

  for (const button of book.querySelectorAll("th button")) {
    button.addEventListener("click", () => sort(button.parentElement));
  }
  for (const menu of menus) menu.addEventListener("change", filter);
  filter();
})();
