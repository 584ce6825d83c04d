// Source lines and instructions of a function, with the samples at each.

import { INLINED, Profile, escaped, inflated } from "./profile.mjs";
import { button, element } from "./tables.mjs";
import { NodeWeights } from "./tree.mjs";

/** @typedef {import("./tree.mjs").CalleeTree} CalleeTree */

/**
 * @typedef {object} CodePart The instructions of a function in one module.
 * @property {string} path
 * @property {number[]} addresses
 * @property {string[]} texts
 * @property {number[]} targets For each instruction, the one that it jumps to, from 1; 0 for none.
 * @property {number[]} places For each instruction, its location, from 1; 0 for none.
 * @property {[number, number, number][][]} locations Function and file in `names`, and line; the innermost first.
 * @typedef {{function: number, missing?: string, parts: CodePart[]}} FunctionCode
 * @typedef {{file: string, first_line: number, lines: string[], is_newer: boolean}} SourceExcerpt
 * @typedef {{functions: FunctionCode[], names: string[], sources: SourceExcerpt[]}} CodeDocument
 * @typedef {{own: number, total: number}} LineWeight
 */

/** Rows that are shown around a sampled one. */
const ROWS_AROUND = 12;
/** The most arrows beside each other. */
const MAX_ARROWS = 7;
const ARROW_WIDTH_PX = 7;
/** The longest line of source that is shown, in characters. */
const MAX_LINE_LENGTH = 2000;

/** The code in the page. */
export class Code {
  /** @param {CodeDocument} document */
  constructor(document) {
    this.names = document.names;
    this.functions = new Map(document.functions.map((it) => [it.function, it]));
    /** @type {Map<string, Map<number, string>>} */
    this.sources = new Map();
    /** @type {Set<string>} */
    this.newer = new Set();
    for (const { file, first_line, lines, is_newer } of document.sources) {
      let known = this.sources.get(file);
      if (!known) this.sources.set(file, (known = new Map()));
      for (const [n, line] of lines.entries()) known.set(first_line + n, line);
      if (is_newer) this.newer.add(file);
    }
  }

  /**
   * The text of a line; empty if it is not in the page.
   * @param {string} file
   * @param {number} line
   */
  line(file, line) {
    return visible(this.sources.get(file)?.get(line)?.slice(0, MAX_LINE_LENGTH) ?? "");
  }
}

/**
 * A text that keeps its tabs.
 * @param {string} text
 */
function visible(text) {
  return text.split("\t").map(escaped).join("\t");
}

/**
 * Decodes the code.
 * @param {string} base64
 */
export async function decodeCode(base64) {
  return new Code(JSON.parse(new TextDecoder().decode(await inflated(base64))));
}

/**
 * The weight of the samples at each instruction of a function, and their number.
 * @param {Profile} profile
 * @param {CalleeTree} tree
 * @param {number} fn
 * @param {number} count The number of its instructions.
 */
export function instructionWeights(profile, tree, fn, count) {
  const own = new Float64Array(count);
  const counts = new Int32Array(count);
  for (const sample of tree.samples) {
    const place = profile.place[sample];
    let node = profile.node[sample];
    if (!place) continue;
    // The code is that of the function that others were inlined into.
    while (node > 0 && profile.flags[node] & INLINED) node = profile.parent[node];
    if (node === 0 || profile.fn[node] !== fn || place > count) continue;
    own[place - 1] += profile.weight[sample];
    counts[place - 1] += 1;
  }
  return { own, counts };
}

/**
 * The weight of each line of a function, and at 0 that of unknown lines. A sample counts once for a line.
 * @param {Profile} profile
 * @param {CalleeTree} tree
 * @param {number} fn
 */
export function lineWeights(profile, tree, fn) {
  const size = profile.nodeCount + 1;
  const weights = NodeWeights.of(profile, tree.samples, profile);
  const { last } = profile;
  /** @type {Map<number, LineWeight>} */
  const lines = new Map();
  const first = profile.header.functions[fn]?.line ?? 1;
  const weightOf = (/** @type {number} */ node) => {
    const line = profile.line.length > 0 && profile.line[node] > 0 ? first + profile.line[node] - 1 : 0;
    let weight = lines.get(line);
    if (!weight) lines.set(line, (weight = { own: 0, total: 0 }));
    return weight;
  };
  /**
   * The nodes of the function above the current one.
   * @type {number[]}
   */
  const open = [];
  /** @type {Map<LineWeight, number>} */
  const active = new Map();
  for (let n = 1; n < size; n++) {
    if (profile.fn[n] !== fn) continue;
    const total = weights.below(n);
    if (total <= 0) continue;
    while (open.length > 0 && last[open[open.length - 1]] < n) {
      const weight = weightOf(/** @type {number} */ (open.pop()));
      active.set(weight, (active.get(weight) ?? 0) - 1);
    }
    const weight = weightOf(n);
    const count = active.get(weight) ?? 0;
    weight.own += weights.own(n);
    if (count === 0) weight.total += total;
    active.set(weight, count + 1);
    open.push(n);
  }
  return lines;
}

/**
 * Which rows are near those that matter.
 * @param {number} count
 * @param {number} around
 * @param {Iterable<number>} rows
 */
function nearRows(count, around, rows) {
  const near = new Uint8Array(count);
  for (const row of rows) near.fill(1, Math.max(row - around, 0), row + around + 1);
  return near;
}

/**
 * A cell with a share, and a bar as long.
 * @param {number} weight
 * @param {number} greatest
 * @param {(weight: number) => string} share
 */
function shareCell(weight, greatest, share) {
  const cell = element("td", weight > 0 ? share(weight) : "", "number heat");
  cell.style.setProperty("--heat", `${((100 * weight) / (greatest || 1)).toFixed(1)}%`);
  return cell;
}

/**
 * @param {string[]} names
 * @param {string} label
 */
function codeTable(names, label) {
  const table = element("table", undefined, "code");
  table.setAttribute("aria-label", label);
  const head = table.createTHead().insertRow();
  for (const name of names) {
    const isNumber = !["jumps", "instruction", "source"].includes(name);
    const cell = element("th", name, isNumber ? "number" : "");
    cell.scope = "col";
    head.append(cell);
  }
  return table;
}

/**
 * @typedef {object} CodeOptions
 * @property {string} name
 * @property {string} file
 * @property {number} line The line to be seen; 0 for none.
 * @property {(weight: number) => string} share
 * @property {(name: string) => string} short A name as it is shown.
 * @property {(line: number) => void} onLine
 */

/**
 * The source of a function.
 * @param {HTMLElement} parent
 * @param {Code} code
 * @param {Map<number, LineWeight>} lines
 * @param {CodeOptions} options
 */
export function showSource(parent, code, lines, options) {
  const { file } = options;
  parent.append(element("p", file === "" ? `The source of ${options.name} is unknown: build it with -g.` : file, "path"));
  if (code.newer.has(file)) {
    parent.append(element("p", "This file was changed after the program was built: lines may be others."));
  }
  const sampled = [...lines.keys()].filter((line) => line > 0).sort((a, b) => a - b);
  const known = code.sources.get(file);
  if (sampled.length > 0 && !known) {
    parent.append(element("p", "The text of this file is not in the page: report --source says why."));
  }
  const shown = new Set(sampled);
  for (const line of known?.keys() ?? []) {
    const at = sampled.findIndex((it) => it >= line - ROWS_AROUND);
    if (at >= 0 && sampled[at] <= line + ROWS_AROUND) shown.add(line);
  }
  const table = codeTable(["own", "total", "line", "source"], `Source of ${options.name}`);
  const body = table.createTBody();
  const greatest = Math.max(0, ...[...lines.values()].map((weight) => weight.total));
  let previous = 0;
  /** @type {HTMLElement | null} */
  let wanted = null;
  for (const line of [...shown].sort((a, b) => a - b)) {
    if (previous > 0 && line > previous + 1) gap(body, `… ${line - previous - 1} lines`, 4);
    previous = line;
    const weight = lines.get(line) ?? { own: 0, total: 0 };
    const row = body.insertRow();
    const number = element("td", undefined, "number place");
    number.append(weight.own > 0 ? button(String(line), () => options.onLine(line)) : String(line));
    row.append(
      shareCell(weight.own, greatest, options.share),
      shareCell(weight.total, greatest, options.share),
      number,
      element("td", code.line(file, line), "text"),
    );
    if (line === options.line) wanted = row;
  }
  const unknown = lines.get(0);
  if (unknown) {
    const row = body.insertRow();
    row.append(
      shareCell(unknown.own, greatest, options.share),
      shareCell(unknown.total, greatest, options.share),
      element("td"),
      element("td", "without a line in this file"),
    );
  }
  if (body.rows.length > 0) parent.append(scrolling(table, wanted, `Source of ${options.name}`));
}

/**
 * The instructions of a function.
 * @param {HTMLElement} parent
 * @param {Code} code
 * @param {FunctionCode | undefined} found
 * @param {{own: Float64Array, counts: Int32Array}} weights
 * @param {CodeOptions} options
 */
export function showInstructions(parent, code, found, weights, options) {
  if (!found || found.parts.length === 0) {
    const why = found?.missing ?? "only functions with a large own weight have them here: report --disasm shows others";
    parent.append(element("p", `There are no instructions of ${options.name} in the page: ${why}.`));
    return;
  }
  const greatest = weights.own.reduce((a, b) => Math.max(a, b), 0);
  let first = 0;
  for (const part of found.parts) {
    const start = first;
    first += part.addresses.length;
    const at = (/** @type {number} */ row) => ({ own: weights.own[start + row], count: weights.counts[start + row] });
    parent.append(element("p", visible(part.path), "path"));
    parent.append(instructionTable(code, part, at, greatest, options));
  }
}

/**
 * @param {Code} code
 * @param {CodePart} part
 * @param {(row: number) => {own: number, count: number}} at
 * @param {number} greatest
 * @param {CodeOptions} options
 */
function instructionTable(code, part, at, greatest, options) {
  const count = part.addresses.length;
  const table = codeTable(["own", "samples", "address", "jumps", "instruction"], `Instructions of ${options.name}`);
  const body = table.createTBody();
  const arrows = jumpArrows(part.targets);
  const columns = arrows.reduce((most, arrow) => Math.max(most, arrow.column + 1), 0);
  const sampled = part.addresses.map((_, row) => row).filter((row) => at(row).count > 0);
  const near = sampled.length > 0 ? nearRows(count, ROWS_AROUND, sampled) : new Uint8Array(count).fill(1);
  /** @type {(HTMLTableRowElement | null)[]} */
  let rows = [];
  /** @type {HTMLElement | null} */
  let wanted = null;
  const box = scrolling(table, null, `Instructions of ${options.name}`);
  const canvas = element("canvas", undefined, "arrows");
  canvas.setAttribute("aria-hidden", "true");
  box.append(canvas);
  const fill = () => {
    body.replaceChildren();
    rows = new Array(count).fill(null);
    let place = 0;
    for (let row = 0; row < count; row++) {
      let hidden = 0;
      while (row + hidden < count && !near[row + hidden]) hidden++;
      if (hidden > 0) {
        const from = row;
        gap(body, `… ${hidden} instructions without samples`, 5, () => {
          near.fill(1, from, from + hidden);
          fill();
        });
        row += hidden - 1;
        place = 0;
        continue;
      }
      if (part.places[row] !== place) {
        place = part.places[row];
        const line = locationRow(body, code, part.locations[place - 1] ?? [], options);
        if (line) wanted ??= line;
      }
      rows[row] = instructionRow(body, part, row, at(row), greatest, columns, options);
    }
    draw();
  };
  const draw = () => drawArrows(canvas, table, rows, arrows, columns);
  fill();
  new ResizeObserver(draw).observe(table);
  const seen = wanted ?? rows[sampled.reduce((a, b) => (at(b).own > at(a).own ? b : a), sampled[0] ?? 0)];
  requestAnimationFrame(() => seen && centre(box, seen));
  return box;
}

/**
 * The row before instructions of another line; returned if it is the wanted one.
 * @param {HTMLTableSectionElement} body
 * @param {Code} code
 * @param {[number, number, number][]} frames
 * @param {CodeOptions} options
 */
function locationRow(body, code, frames, options) {
  if (frames.length === 0 || frames[0][2] === 0) return null;
  const [fn, file, line] = frames[0];
  const outer = frames[frames.length - 1][2];
  const row = body.insertRow();
  row.className = "location";
  const place = row.insertCell();
  place.colSpan = 3;
  row.insertCell().className = "gutter";
  const cell = row.insertCell();
  const name = code.names[file].replace(/^.*\//, "");
  place.append(button(`${visible(name)}:${line}`, () => options.onLine(outer)));
  cell.append(element("span", code.line(code.names[file], line).trim(), "text"));
  if (frames.length > 1) cell.append(element("span", `  ↳ ${visible(options.short(code.names[fn]))}`, "inlined"));
  return options.line > 0 && outer === options.line ? row : null;
}

/**
 * @param {HTMLTableSectionElement} body
 * @param {CodePart} part
 * @param {number} row
 * @param {{own: number, count: number}} weight
 * @param {number} greatest
 * @param {number} columns
 * @param {CodeOptions} options
 */
function instructionRow(body, part, row, weight, greatest, columns, options) {
  const made = body.insertRow();
  const gutter = element("td", undefined, "gutter");
  gutter.style.width = gutter.style.minWidth = `${(columns + 1) * ARROW_WIDTH_PX}px`;
  made.append(
    shareCell(weight.own, greatest, options.share),
    element("td", weight.count > 0 ? String(weight.count) : "", "number"),
    element("td", part.addresses[row].toString(16), "number place"),
    gutter,
    element("td", visible(part.texts[row]), "text"),
  );
  return made;
}

/**
 * A row for what is left out.
 * @param {HTMLTableSectionElement} body
 * @param {string} text
 * @param {number} columns
 * @param {() => void} [open]
 */
function gap(body, text, columns, open) {
  const cell = body.insertRow().insertCell();
  cell.colSpan = columns;
  cell.className = "gap";
  cell.append(open ? button(text, open) : text);
}

/**
 * A box that scrolls, with a table.
 * @param {HTMLTableElement} table
 * @param {HTMLElement | null} wanted The row to be seen.
 * @param {string} label
 */
function scrolling(table, wanted, label) {
  const box = element("div", undefined, "scrolling");
  box.tabIndex = 0;
  box.setAttribute("role", "region");
  box.setAttribute("aria-label", label);
  box.append(table);
  wanted?.classList.add("selected");
  if (wanted) requestAnimationFrame(() => centre(box, wanted));
  return box;
}

/**
 * Scrolls a box so that a row is in its middle.
 * @param {HTMLElement} box
 * @param {HTMLElement} row
 */
function centre(box, row) {
  box.scrollTop = row.offsetTop - (box.clientHeight - row.offsetHeight) / 2;
}

/**
 * All jumps to one instruction.
 * @typedef {{target: number, sources: number[], first: number, last: number, column: number}} Arrow
 */

/**
 * The arrows of a function. Short ones are near the instructions, long ones around them; the longest of too
 * many are left out.
 * @param {number[]} targets
 */
export function jumpArrows(targets) {
  /** @type {Map<number, number[]>} */
  const sources = new Map();
  for (const [source, target] of targets.entries()) {
    if (target > 0) sources.set(target - 1, [...(sources.get(target - 1) ?? []), source]);
  }
  /** @type {Arrow[]} */
  const waiting = [...sources].map(([target, from]) => {
    const first = Math.min(target, from[0]);
    return { target, sources: from, first, last: Math.max(target, from[from.length - 1]), column: 0 };
  });
  waiting.sort((a, b) => a.last - a.first - (b.last - b.first) || a.target - b.target);
  /** @type {Arrow[][]} */
  const columns = [];
  for (const arrow of waiting) {
    const isFree = (/** @type {Arrow[]} */ beside) => beside.every((it) => it.last < arrow.first || arrow.last < it.first);
    arrow.column = columns.findIndex(isFree);
    if (arrow.column < 0) arrow.column = columns.length;
    if (arrow.column >= MAX_ARROWS) continue;
    (columns[arrow.column] ??= []).push(arrow);
  }
  return columns.flat();
}

/**
 * @param {HTMLCanvasElement} canvas
 * @param {HTMLTableElement} table
 * @param {(HTMLTableRowElement | null)[]} rows
 * @param {Arrow[]} arrows
 * @param {number} columns
 */
function drawArrows(canvas, table, rows, arrows, columns) {
  const gutter = table.querySelector(".gutter");
  const context = canvas.getContext("2d");
  if (!(gutter instanceof HTMLElement) || !context || columns === 0) return;
  const width = (columns + 1) * ARROW_WIDTH_PX;
  // Larger canvases stay blank in browsers.
  const height = Math.min(table.offsetHeight, 16_000);
  const ratio = height > 8000 ? 1 : window.devicePixelRatio;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  canvas.style.left = `${gutter.offsetLeft}px`;
  context.scale(ratio, ratio);
  context.strokeStyle = context.fillStyle = getComputedStyle(canvas).color;
  // Where rows are; of rows that are left out, the last one before them.
  const middles = new Float64Array(rows.length);
  let middle = 0;
  rows.forEach((row, n) => (middles[n] = middle = row ? row.offsetTop + row.offsetHeight / 2 : middle));
  const right = width - 2;
  for (const { target, sources, first, last, column } of arrows) {
    const x = (columns - column - 0.5) * ARROW_WIDTH_PX + 0.5;
    context.beginPath();
    context.moveTo(x, middles[first]);
    context.lineTo(x, middles[last]);
    for (const end of [target, ...sources]) {
      if (!rows[end]) continue;
      context.moveTo(x, middles[end]);
      context.lineTo(right, middles[end]);
    }
    context.stroke();
    if (!rows[target]) continue;
    context.beginPath();
    context.moveTo(right + 1, middles[target]);
    context.lineTo(right - 5, middles[target] - 3.5);
    context.lineTo(right - 5, middles[target] + 3.5);
    context.fill();
  }
}
