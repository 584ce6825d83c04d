// The difference between two profiles: paths and functions of one, with their shares in the other.

import { Profile } from "./profile.mjs";

/** @typedef {import("./tree.mjs").Tree} Tree */

/** A change of share that has the full colour, in percent. */
const FULL_COLOUR = 10;

/**
 * For each function of a profile, and then for each module, the same one of another profile; -1 for none.
 * Addresses that tell functions of one name apart differ from build to build.
 * @param {Profile} from
 * @param {Profile} to
 */
export function sameFunctions(from, to) {
  const key = (/** @type {Profile} */ profile, /** @type {number} */ fn) =>
    profile.key(fn).replace(/@0x[0-9a-f]+/, "");
  const count = (/** @type {Profile} */ profile) => profile.header.functions.length + profile.header.modules.length;
  /** @type {Map<string, number>} */
  const known = new Map();
  for (let fn = count(to) - 1; fn >= 0; fn--) known.set(key(to, fn), fn);
  return Int32Array.from({ length: count(from) }, (_, fn) => known.get(key(from, fn)) ?? -1);
}

/** Which nodes of a tree are those of another one, by the functions on the way to them. */
export class SameNodes {
  /**
   * @param {Tree} tree
   * @param {Tree} other
   * @param {Int32Array} functions
   */
  constructor(tree, other, functions) {
    this.tree = tree;
    this.other = other;
    this.functions = functions;
    /** @type {Map<number, number>} */
    this.nodes = new Map([[0, 0]]);
    /**
     * The children of nodes of the other tree, by function.
     * @type {Map<number, Map<number, number>>}
     */
    this.children = new Map();
  }

  /**
   * The node of the other tree; -1 if it has none.
   * @param {number} node
   */
  get(node) {
    const { tree, other, functions, nodes } = this;
    // No recursion: a stack may have a million frames.
    const path = [];
    let at = node;
    while (!nodes.has(at)) {
      path.push(at);
      at = tree.parent(at);
    }
    let same = nodes.get(at) ?? -1;
    for (const below of path.reverse()) {
      if (same >= 0) {
        let children = this.children.get(same);
        if (!children) {
          children = new Map(Array.from(other.children(same), (child) => [other.fn(child), child]));
          this.children.set(same, children);
        }
        const fn = functions[tree.fn(below)];
        same = fn < 0 ? -1 : (children.get(fn) ?? -1);
      }
      nodes.set(below, same);
    }
    return same;
  }

  /**
   * By how much the share of a node is greater than in the other tree, in percent of all.
   * @param {number} node
   */
  change(node) {
    const same = this.get(node);
    const before = same < 0 ? 0 : this.other.total(same) / (this.other.total(0) || 1);
    return 100 * (this.tree.total(node) / (this.tree.total(0) || 1) - before);
  }
}

/**
 * A change in percent, with its sign.
 * @param {number} change
 */
export function changeText(change) {
  const text = Math.abs(change).toFixed(2);
  if (text === "0.00") return "0.00 %";
  return `${change > 0 ? "+" : "−"}${text} %`;
}

/**
 * Red for more, blue for less, grey for the same.
 * @param {number} change In percent.
 */
export function changeColour(change) {
  const strength = Math.sqrt(Math.min(Math.abs(change) / FULL_COLOUR, 1));
  if (strength < 0.03) return "hsl(0 0% 84%)";
  return `hsl(${change > 0 ? 8 : 215} 85% ${Math.round(90 - 25 * strength)}%)`;
}
