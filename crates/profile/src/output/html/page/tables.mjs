// Lists and trees as tables.

import { changeColour, changeText } from "./difference.mjs";

/** @typedef {import("./tree.mjs").Tree} Tree */

/** The most rows of a table: a search finds the others. */
const MAX_ROWS = 500;
/** The rows that are made at once: more than a window shows. The others follow. */
const ROWS_AT_ONCE = 50;
const ROWS_PAUSE_MS = 50;
/** The most rows that open by themselves. */
const MAX_OPEN_ROWS = 40;

/**
 * An element with a text. Names are always text, never markup.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} name
 * @param {string} [text]
 * @param {string} [className]
 * @returns {HTMLElementTagNameMap[K]}
 */
export function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

/**
 * A button.
 * @param {string} text
 * @param {() => void} click
 */
export function button(text, click) {
  const made = element("button", text);
  made.type = "button";
  made.addEventListener("click", click);
  return made;
}

/**
 * Adds rows to a table, as long as it is in the page.
 * @template Row
 * @param {HTMLTableSectionElement} body
 * @param {Row[]} rows
 * @param {(some: Row[]) => void} add
 */
function addRows(body, rows, add) {
  const count = Math.min(rows.length, MAX_ROWS);
  let at = 0;
  const more = () => {
    add(rows.slice(at, Math.min(at + ROWS_AT_ONCE, count)));
    at += ROWS_AT_ONCE;
    if (at < count) setTimeout(() => body.isConnected && more(), ROWS_PAUSE_MS);
  };
  more();
}

/**
 * @typedef {{id: number, name: string, module: string, own: number, total: number}} ListRow
 * @typedef {{id: number, name: string, module: string, own: [number, number], total: [number, number]}} ChangeRow
 *   Shares before and after, in percent.
 */

/**
 * A list of functions or modules.
 * @param {HTMLElement} parent
 * @param {ListRow[]} rows
 * @param {object} options
 * @param {string} options.sort
 * @param {boolean} options.hasModules
 * @param {number} options.selected
 * @param {(weight: number) => string} options.share
 * @param {(sort: "own" | "total" | "name" | "module") => void} options.onSort
 * @param {(id: number) => void} options.onSelect
 */
export function showList(parent, rows, options) {
  const { sort } = options;
  const byText = (/** @type {"name" | "module"} */ key) => (/** @type {ListRow} */ a, /** @type {ListRow} */ b) =>
    a[key] < b[key] ? -1 : a[key] > b[key] ? 1 : b.own - a.own;
  if (sort === "name" || sort === "module") rows.sort(byText(sort));
  else if (sort === "total") rows.sort((a, b) => b.total - a.total);
  else rows.sort((a, b) => b.own - a.own || b.total - a.total);
  const table = element("table");
  const head = table.createTHead().insertRow();
  const columns = /** @type {const} */ (["own", "total", "name", ...(options.hasModules ? ["module"] : [])]);
  for (const column of columns) {
    const cell = element("th");
    cell.scope = "col";
    if (column === sort) cell.setAttribute("aria-sort", column === "own" || column === "total" ? "descending" : "ascending");
    cell.append(button(column, () => options.onSort(/** @type {"own"} */ (column))));
    head.append(cell);
  }
  const body = table.createTBody();
  const fill = (/** @type {HTMLTableRowElement} */ line, /** @type {ListRow} */ row) => {
    line.classList.toggle("selected", row.id === options.selected);
    line.append(element("td", options.share(row.own), "number"), element("td", options.share(row.total), "number"));
    const name = element("td");
    name.append(button(row.name, () => options.onSelect(row.id)));
    line.append(name);
    if (options.hasModules) line.append(element("td", row.module));
  };
  addRows(body, rows, (some) => some.forEach((row) => fill(body.insertRow(), row)));
  parent.append(table);
  if (rows.length > MAX_ROWS) {
    parent.append(element("p", `${MAX_ROWS} of ${rows.length}: a search finds the others.`));
  }
}

/**
 * A list of functions or modules with their shares in two profiles, the greatest change first.
 * @param {HTMLElement} parent
 * @param {ChangeRow[]} rows
 * @param {object} options
 * @param {string} options.sort
 * @param {number} options.selected
 * @param {(sort: "own" | "total" | "name" | "module") => void} options.onSort
 * @param {(id: number) => void} options.onSelect
 */
export function showChanges(parent, rows, options) {
  const size = (/** @type {[number, number]} */ [before, after]) => Math.abs(after - before);
  const { sort } = options;
  if (sort === "name" || sort === "module") rows.sort((a, b) => (a[sort] < b[sort] ? -1 : a[sort] > b[sort] ? 1 : 0));
  else if (sort === "total") rows.sort((a, b) => size(b.total) - size(a.total) || size(b.own) - size(a.own));
  else rows.sort((a, b) => size(b.own) - size(a.own) || size(b.total) - size(a.total));
  const table = element("table");
  const head = table.createTHead().insertRow();
  const columns = /** @type {const} */ (["own", "before", "after", "total", "before", "after", "name", "module"]);
  for (const column of columns) {
    const cell = element("th");
    cell.scope = "col";
    if (column === sort) cell.setAttribute("aria-sort", column === "own" || column === "total" ? "descending" : "ascending");
    if (column === "before" || column === "after") {
      cell.textContent = column;
      cell.className = "detail";
    } else {
      const isChange = column === "own" || column === "total";
      cell.append(button(isChange ? `${column} change` : column, () => options.onSort(column)));
    }
    head.append(cell);
  }
  const body = table.createTBody();
  const fill = (/** @type {HTMLTableRowElement} */ line, /** @type {ChangeRow} */ row) => {
    line.classList.toggle("selected", row.id >= 0 && row.id === options.selected);
    for (const [before, after] of [row.own, row.total]) {
      const change = element("td", changeText(after - before), "number change");
      change.style.setProperty("--change", changeColour(after - before));
      const share = (/** @type {number} */ percent) => element("td", `${percent.toFixed(2)} %`, "number detail");
      line.append(change, share(before), share(after));
    }
    const name = element("td");
    name.append(row.id >= 0 ? button(row.name, () => options.onSelect(row.id)) : row.name);
    line.append(name, element("td", row.module));
  };
  addRows(body, rows, (some) => some.forEach((row) => fill(body.insertRow(), row)));
  const box = element("div", undefined, "wide");
  box.append(table);
  parent.append(box);
  if (rows.length > MAX_ROWS) {
    parent.append(element("p", `${MAX_ROWS} of ${rows.length}: a search finds the others.`));
  }
}

/**
 * A tree as a table whose rows open.
 * @param {HTMLElement} parent
 * @param {Tree} tree
 * @param {object} options
 * @param {string} options.label
 * @param {(fn: number) => string} options.name
 * @param {(fn: number) => string} options.module
 * @param {(node: number) => string} options.mark
 * @param {(weight: number) => string} options.share
 * @param {((node: number) => number) | null} options.change By how much a node's share has changed, in percent.
 * @param {((fn: number) => boolean) | null} options.isFound
 * @param {(node: number) => void} options.onSelect
 */
export function showTree(parent, tree, options) {
  const table = element("table");
  table.setAttribute("role", "treegrid");
  table.setAttribute("aria-label", options.label);
  const head = table.createTHead().insertRow();
  const { change } = options;
  for (const name of [...(change ? ["change"] : []), "total", "own", "name", "module"]) {
    const cell = element("th", name);
    cell.scope = "col";
    head.append(cell);
  }
  const body = table.createTBody();
  parent.append(table);

  /**
   * @param {number} node
   * @param {number} level
   */
  const makeRow = (node, level) => {
    const row = element("tr");
    const isLeaf = tree.isLeaf(node);
    row.setAttribute("aria-level", String(level));
    row.dataset.node = String(node);
    row.tabIndex = -1;
    if (!isLeaf) row.setAttribute("aria-expanded", "false");
    const name = element("td");
    // Deep trees must not leave the window.
    name.style.paddingInlineStart = `${Math.min(level, 40) * 0.8}em`;
    const toggle = element("span", isLeaf ? "  " : "▸ ", "toggle");
    toggle.setAttribute("aria-hidden", "true");
    const text = element("span", options.name(tree.fn(node)));
    if (options.isFound?.(tree.fn(node))) text.className = "found";
    name.append(toggle, text, element("small", options.mark(node)));
    if (change) {
      const cell = element("td", changeText(change(node)), "number change");
      cell.style.setProperty("--change", changeColour(change(node)));
      row.append(cell);
    }
    row.append(
      element("td", options.share(tree.total(node)), "number"),
      element("td", tree.own(node) > 0 ? options.share(tree.own(node)) : "", "number"),
      name,
      element("td", options.module(tree.fn(node))),
    );
    return row;
  };
  const levelOf = (/** @type {Element} */ row) => Number(row.getAttribute("aria-level"));
  const nodeOf = (/** @type {HTMLElement} */ row) => Number(row.dataset.node);
  /**
   * The children of rows that are open.
   * @type {WeakMap<HTMLElement, number[]>}
   */
  const opened = new WeakMap();
  /** @param {HTMLElement} row */
  const open = (row) => {
    if (row.getAttribute("aria-expanded") !== "false") return;
    row.setAttribute("aria-expanded", "true");
    const toggle = row.querySelector(".toggle");
    if (toggle) toggle.textContent = "▾ ";
    const children = Array.from(tree.children(nodeOf(row)));
    opened.set(row, children);
    /** @type {Element} */
    let last = row;
    addRows(body, children, (some) => {
      // It may have been closed since, and its children opened.
      if (opened.get(row) !== children) return;
      while (last.nextElementSibling && levelOf(last.nextElementSibling) > levelOf(row)) last = last.nextElementSibling;
      last.after(...some.map((child) => makeRow(child, levelOf(row) + 1)));
    });
  };
  /** @param {HTMLElement} row */
  const close = (row) => {
    if (row.getAttribute("aria-expanded") !== "true") return;
    row.setAttribute("aria-expanded", "false");
    opened.delete(row);
    const toggle = row.querySelector(".toggle");
    if (toggle) toggle.textContent = "▸ ";
    while (row.nextElementSibling && levelOf(row.nextElementSibling) > levelOf(row)) row.nextElementSibling.remove();
  };
  /** @param {HTMLElement} row */
  const select = (row) => {
    for (const other of body.rows) {
      other.tabIndex = other === row ? 0 : -1;
      other.setAttribute("aria-selected", String(other === row));
    }
    row.focus();
    options.onSelect(nodeOf(row));
  };
  const rowOf = (/** @type {Event} */ event) =>
    /** @type {HTMLElement | null} */ (/** @type {Element} */ (event.target).closest("tbody tr"));
  body.addEventListener("click", (event) => {
    const row = rowOf(event);
    if (!row) return;
    if (row.getAttribute("aria-expanded") === "true") close(row);
    else open(row);
    select(row);
  });
  body.addEventListener("keydown", (event) => {
    const row = rowOf(event);
    if (!row) return;
    const before = () => {
      let at = row.previousElementSibling;
      while (at && levelOf(at) >= levelOf(row)) at = at.previousElementSibling;
      return at;
    };
    const isOpen = row.getAttribute("aria-expanded") === "true";
    /** @type {Element | null} */
    let to = null;
    if (event.key === "ArrowDown") to = row.nextElementSibling;
    else if (event.key === "ArrowUp") to = row.previousElementSibling;
    else if (event.key === "ArrowRight" && isOpen) to = row.nextElementSibling;
    else if (event.key === "ArrowRight") open(row);
    else if (event.key === "ArrowLeft" && isOpen) close(row);
    else if (event.key === "ArrowLeft") to = before();
    else return;
    event.preventDefault();
    if (to) select(/** @type {HTMLElement} */ (to));
  });

  addRows(body, Array.from(tree.children(0)), (some) => body.append(...some.map((node) => makeRow(node, 1))));
  // Opens the heaviest path, as far as most of the weight goes the same way.
  let row = body.rows[0];
  for (let n = 0; row && n < MAX_OPEN_ROWS; n++) {
    const children = tree.children(nodeOf(row));
    if (children.length === 0) break;
    open(row);
    if (tree.total(children[0]) < tree.total(nodeOf(row)) / 2) break;
    row = /** @type {HTMLTableRowElement} */ (row.nextElementSibling);
  }
  if (body.rows[0]) body.rows[0].tabIndex = 0;
}
