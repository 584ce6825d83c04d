// The graph: flame graph and icicle, merged and by time.

import { changeColour } from "./difference.mjs";
import { pathOf } from "./tree.mjs";

/** @typedef {import("./tree.mjs").Tree} Tree */

const ROW_HEIGHT_PX = 18;
/** Wider boxes have a border. */
const BORDER_FROM_PX = 3;
/** The greatest number of boxes that are laid out. */
const MAX_BOXES = 100_000;

/**
 * @typedef {{node: number, depth: number, x: number, width: number}} Box In pixels.
 * @typedef {object} GraphContent
 * @property {Tree} tree
 * @property {number} zoom
 * @property {boolean} up Whether the root is below.
 * @property {(fn: number) => string} label
 * @property {(fn: number) => string} kind The colour: `user`, `kernel`, `jit`, `module`.
 * @property {(fn: number) => number} hue A number for the module.
 * @property {((fn: number) => boolean) | null} isFound
 * @property {((node: number) => number) | null} change By how much a node's share has changed, in percent.
 */

export class Graph {
  /**
   * @param {HTMLElement} parent
   * @param {(node: number, isPassing: boolean) => void} onSelect Passing: the pointer is over it.
   * @param {(node: number) => void} onZoom
   */
  constructor(parent, onSelect, onZoom) {
    this.onSelect = onSelect;
    this.onZoom = onZoom;
    this.scroller = document.createElement("div");
    this.scroller.className = "graph";
    this.spacer = document.createElement("div");
    this.canvas = document.createElement("canvas");
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "application");
    this.canvas.setAttribute("aria-label", "Graph of stacks: arrows move, Enter zooms in, Escape zooms out");
    this.spacer.append(this.canvas);
    this.scroller.append(this.spacer);
    parent.append(this.scroller);
    /** @type {GraphContent | null} */
    this.content = null;
    /** @type {Box[][]} */
    this.rows = [];
    /** The width that they are laid out for. */
    this.width = 0;
    this.cursor = 0;
    this.hovered = -1;
    this.pattern = hatch();
    this.letterWidth = 0;
    this.scroller.addEventListener("scroll", () => this.draw());
    this.canvas.addEventListener("pointermove", (event) => this.hover(this.boxAt(event)));
    this.canvas.addEventListener("pointerleave", () => this.hover(null));
    this.canvas.addEventListener("click", (event) => {
      const box = this.boxAt(event);
      if (!box) return;
      this.move(box.node);
      this.onZoom(box.node);
    });
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => {
      if (this.scroller.clientWidth === this.width) return;
      this.layout();
      this.draw();
    }).observe(this.scroller);
  }

  /** @param {GraphContent} content */
  show(content) {
    this.content = content;
    this.cursor = content.zoom;
    this.layout();
    this.scroller.scrollTop = content.up ? this.scroller.scrollHeight : 0;
    this.draw();
  }

  /** Computes the boxes of all rows. */
  layout() {
    if (!this.content) return;
    const { tree, zoom, up } = this.content;
    const width = (this.width = this.scroller.clientWidth);
    const path = pathOf(tree, zoom);
    /** @type {Box[][]} */
    this.rows = [[{ node: 0, depth: 0, x: 0, width }]];
    path.forEach((node, n) => this.rows.push([{ node, depth: n + 1, x: 0, width }]));
    const scale = width / (tree.total(zoom) || 1);
    const isByTime = tree.start(zoom) !== null;
    const zoomStart = tree.start(zoom) ?? 0;
    let count = 0;
    for (let depth = path.length; depth < this.rows.length && count < MAX_BOXES; depth++) {
      /** @type {Box[]} */
      const row = [];
      for (const box of this.rows[depth]) {
        // Less than a pixel is not followed, except by time, where these are the stacks.
        if (box.width < 1 && !isByTime) continue;
        let x = box.x;
        for (const node of tree.children(box.node)) {
          const width = tree.total(node) * scale;
          if (isByTime) x = ((tree.start(node) ?? 0) - zoomStart) * scale;
          else if (width < 0.5) break;
          if (width >= 0.5) row.push({ node, depth: depth + 1, x, width });
          x += width;
        }
      }
      count += row.length;
      if (row.length > 0) this.rows.push(row);
    }
    const height = Math.min(this.rows.length * ROW_HEIGHT_PX, window.innerHeight * 0.6);
    this.spacer.style.height = `${this.rows.length * ROW_HEIGHT_PX}px`;
    this.scroller.style.height = `${height}px`;
    const ratio = window.devicePixelRatio;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    this.isUp = up;
  }

  /** @param {number} depth */
  top(depth) {
    return (this.isUp ? this.rows.length - 1 - depth : depth) * ROW_HEIGHT_PX - this.scroller.scrollTop;
  }

  draw() {
    const context = this.canvas.getContext("2d");
    if (!this.content || !context) return;
    const style = getComputedStyle(this.canvas);
    const ratio = window.devicePixelRatio;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    context.font = style.font;
    context.textBaseline = "middle";
    const height = this.canvas.height / ratio;
    for (const row of this.rows) {
      const top = row.length > 0 ? this.top(row[0].depth) : 0;
      if (top < -ROW_HEIGHT_PX || top > height) continue;
      this.drawRow(context, row, top, style);
    }
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {Box[]} row
   * @param {number} top
   * @param {CSSStyleDeclaration} style
   */
  drawRow(context, row, top, style) {
    /**
     * Boxes in a row that look the same, without a border between them: one rectangle. By time there can be thousands.
     * @type {Box[]}
     */
    let same = [];
    let [start, end] = [0, 0];
    let look = { fill: "", alpha: 1 };
    const drawSame = () => {
      if (same.length > 0) this.fill(context, look, start, top, end - start);
      for (const box of same) this.drawMarks(context, box, top);
      same = [];
    };
    for (const box of row) {
      const isAlone = box.width > BORDER_FROM_PX || box.node === this.cursor || box.node === this.hovered;
      const own = this.look(box);
      if (isAlone || own.fill !== look.fill || own.alpha !== look.alpha || Math.abs(box.x - end) > 0.01) drawSame();
      if (isAlone) {
        this.drawBox(context, box, top, style, own);
        continue;
      }
      if (same.length === 0) [start, look] = [box.x, own];
      end = box.x + this.visibleWidth(box);
      same.push(box);
    }
    drawSame();
    context.globalAlpha = 1;
  }

  /**
   * The colour and the opacity of a box.
   * @param {Box} box
   */
  look(box) {
    if (!this.content || box.node === 0) return { fill: "#bbbbbb", alpha: 1 };
    const { tree, kind, hue, isFound } = this.content;
    const fn = tree.fn(box.node);
    const changed = this.changeOf(box);
    const fill = changed !== null ? changeColour(changed) : colour(kind(fn), hue(fn), tree.isInlined(box.node));
    return { fill, alpha: isFound !== null && !isFound(fn) ? 0.3 : 1 };
  }

  /**
   * By how much the share of a box has changed; null where that is not shown.
   * @param {Box} box
   */
  changeOf(box) {
    const { tree, change } = /** @type {GraphContent} */ (this.content);
    return change && !tree.start(box.node) ? change(box.node) : null;
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {{fill: string, alpha: number}} look
   * @param {number} x
   * @param {number} top
   * @param {number} width
   */
  fill(context, { fill, alpha }, x, top, width) {
    context.globalAlpha = alpha;
    context.fillStyle = fill;
    context.fillRect(x, top, width, ROW_HEIGHT_PX - 1);
  }

  /** @param {Box} box */
  visibleWidth(box) {
    return Math.max(box.width - (box.width > BORDER_FROM_PX ? 1 : 0), 0.5);
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {Box} box
   * @param {number} top
   * @param {CSSStyleDeclaration} style
   * @param {{fill: string, alpha: number}} look
   */
  drawBox(context, box, top, style, look) {
    if (!this.content) return;
    const { tree, label } = this.content;
    const width = this.visibleWidth(box);
    this.fill(context, look, box.x, top, width);
    this.drawMarks(context, box, top);
    if (box.node === this.cursor || box.node === this.hovered) {
      context.strokeStyle = style.color;
      context.lineWidth = box.node === this.cursor ? 2 : 1;
      context.strokeRect(box.x + 1, top + 1, Math.max(width - 2, 1), ROW_HEIGHT_PX - 3);
    }
    if (box.width < 24) return;
    context.fillStyle = "#111111";
    const changed = this.changeOf(box);
    const sign = changed === null || Math.abs(changed) < 0.005 ? "" : changed > 0 ? "▲ " : "▼ ";
    const text = box.node === 0 ? "all" : sign + (tree.isInlined(box.node) ? "↳ " : "") + label(tree.fn(box.node));
    this.letterWidth ||= context.measureText("the quick brown fox jumps over").width / 30;
    const room = Math.max(Math.floor((width - 8) / this.letterWidth), 2);
    const shown = text.length <= room ? text : `${text.slice(0, room - 1)}…`;
    context.fillText(shown, box.x + 4, top + ROW_HEIGHT_PX / 2, width - 6);
  }

  /**
   * Hatches the part of a box that was spliced, and dots the part that was guessed.
   * @param {CanvasRenderingContext2D} context
   * @param {Box} box
   * @param {number} top
   */
  drawMarks(context, box, top) {
    if (!this.content || box.node === 0) return;
    const { tree } = this.content;
    const width = this.visibleWidth(box);
    const total = tree.total(box.node) || 1;
    const spliced = (width * tree.spliced(box.node)) / total;
    const guessed = (width * tree.guessed(box.node)) / total;
    if (spliced >= 0.5) {
      context.fillStyle = context.createPattern(this.pattern.lines, "repeat") ?? "";
      context.fillRect(box.x + width - spliced, top, spliced, ROW_HEIGHT_PX - 1);
    }
    if (guessed >= 0.5) {
      context.fillStyle = context.createPattern(this.pattern.dots, "repeat") ?? "";
      context.fillRect(box.x + width - spliced - guessed, top, guessed, ROW_HEIGHT_PX - 1);
    }
  }

  /** @param {MouseEvent} event */
  boxAt(event) {
    const y = event.offsetY + this.scroller.scrollTop;
    const line = Math.floor(y / ROW_HEIGHT_PX);
    const row = this.rows[this.isUp ? this.rows.length - 1 - line : line] ?? [];
    return row.find((box) => event.offsetX >= box.x && event.offsetX < box.x + box.width) ?? null;
  }

  /** @param {Box | null} box */
  hover(box) {
    const node = box ? box.node : -1;
    if (node === this.hovered) return;
    this.hovered = node;
    this.onSelect(node >= 0 ? node : this.cursor, true);
    this.draw();
  }

  /** @param {number} node */
  move(node) {
    this.cursor = node;
    const depth = this.content ? pathOf(this.content.tree, node).length : 0;
    const top = this.top(depth);
    const height = this.scroller.clientHeight;
    if (top < 0) this.scroller.scrollTop += top;
    if (top + ROW_HEIGHT_PX > height) this.scroller.scrollTop += top + ROW_HEIGHT_PX - height;
    this.onSelect(node, false);
    this.draw();
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (!this.content) return;
    const { tree, zoom } = this.content;
    const depth = pathOf(tree, this.cursor).length;
    const row = this.rows[depth] ?? [];
    const at = row.findIndex((box) => box.node === this.cursor);
    const inward = this.isUp ? "ArrowUp" : "ArrowDown";
    const outward = this.isUp ? "ArrowDown" : "ArrowUp";
    const callee = (this.rows[depth + 1] ?? []).find((box) => tree.parent(box.node) === this.cursor);
    /** @type {Record<string, number | undefined>} */
    const moves = {
      [inward]: callee?.node,
      [outward]: this.cursor > 0 ? tree.parent(this.cursor) : undefined,
      ArrowLeft: row[at - 1]?.node,
      ArrowRight: row[at + 1]?.node,
    };
    if (event.key in moves) {
      const node = moves[event.key];
      if (node !== undefined) this.move(node);
    } else if (event.key === "Enter") this.onZoom(this.cursor);
    else if (event.key === "Escape") this.onZoom(zoom > 0 ? tree.parent(zoom) : 0);
    else return;
    event.preventDefault();
  }
}

/**
 * @param {string} kind
 * @param {number} hue
 * @param {boolean} isInlined
 */
export function colour(kind, hue, isInlined) {
  const lightness = isInlined ? 86 : 74;
  switch (kind) {
    case "kernel":
      return `hsl(${20 + (hue % 3) * 6} 85% ${lightness}%)`;
    case "jit":
      return `hsl(${110 + (hue % 3) * 10} 50% ${lightness}%)`;
    case "module":
      return `hsl(0 0% ${lightness}%)`;
    default:
      return `hsl(${190 + ((hue * 37) % 90)} 60% ${lightness}%)`;
  }
}

/** Patterns over boxes. */
export function hatch() {
  const make = (/** @type {(context: CanvasRenderingContext2D) => void} */ paint) => {
    const canvas = document.createElement("canvas");
    canvas.width = canvas.height = 8;
    const context = canvas.getContext("2d");
    if (context) {
      context.strokeStyle = context.fillStyle = "#00000059";
      paint(context);
    }
    return canvas;
  };
  const lines = make((context) => {
    for (const x of [-8, 0, 8]) {
      context.moveTo(x, 8);
      context.lineTo(x + 8, 0);
    }
    context.stroke();
  });
  const dots = make((context) => {
    context.fillRect(1, 1, 2, 2);
    context.fillRect(5, 5, 2, 2);
  });
  return { lines, dots };
}
