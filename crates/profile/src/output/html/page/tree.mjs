// Weights of the selected samples, as trees and lists.

import { END, GUESSED, INLINED, SPLICED, Profile } from "./profile.mjs";

/** @typedef {import("./state.mjs").State} State */
/** @typedef {import("./state.mjs").Transform} Transform */

/**
 * The samples that a state selects.
 * @param {Profile} profile
 * @param {State} state
 */
export function select(profile, state) {
  const threads = new Set(state.threads);
  const cpus = new Set(state.cpus);
  const from = state.from ?? -Infinity;
  const to = state.to ?? Infinity;
  const selected = new Int32Array(profile.sampleCount);
  const [ofAnyState, isOffWanted] = [state.state === "all", state.state === "off"];
  const [ofAnyThread, onAnyCpu, atAnyTime] = [threads.size === 0, cpus.size === 0, from === -Infinity && to === Infinity];
  let count = 0;
  for (let n = 0; n < profile.sampleCount; n++) {
    if (!ofAnyState && profile.isOff(n) !== isOffWanted) continue;
    if (!ofAnyThread && !threads.has(profile.thread[n])) continue;
    if (!onAnyCpu && !cpus.has(profile.cpu[n])) continue;
    if (state.wait !== "" && profile.waitOf(n) !== state.wait) continue;
    if (!atAnyTime && (profile.time[n] < from || profile.time[n] >= to)) continue;
    selected[count++] = n;
  }
  return selected.subarray(0, count);
}

/**
 * The weight of what samples wait for, by the number of the reason.
 * @param {Profile} profile
 * @param {Int32Array} samples
 */
export function waitWeights(profile, samples) {
  const own = new Float64Array(profile.header.waits.length);
  for (const sample of samples) {
    const wait = profile.header.waits.indexOf(profile.waitOf(sample));
    if (wait >= 0) own[wait] += profile.weight[sample];
  }
  return { own, total: own };
}

/**
 * A tree whose nodes are numbered from the root, 0. `fn` of the root is -1.
 * @typedef {object} Tree
 * @property {(node: number) => Iterable<number> & ArrayLike<number>} children The greatest weight first, or by time.
 * @property {(node: number) => boolean} isLeaf Whether there are no children: faster than to ask for them.
 * @property {(node: number) => number} fn
 * @property {(node: number) => number} parent
 * @property {(node: number) => number} total
 * @property {(node: number) => number} own
 * @property {(node: number) => number} spliced The part of the total that was spliced.
 * @property {(node: number) => number} guessed
 * @property {(node: number) => boolean} isInlined
 * @property {(node: number) => number | null} start Where it begins, if a graph is not to put it
 *   after its neighbour.
 * @property {(node: number) => boolean} has
 */

/**
 * The nodes of a profile, or of its paths without recursion. They are in preorder; callees of one caller can have the
 * same function.
 * @typedef {object} Nodes
 * @property {Int32Array} fn
 * @property {Int32Array} parent
 * @property {Int32Array} last The last node below each node.
 * @property {Uint8Array} flags
 * @property {Int32Array | null} map The node of each node of the profile; null if it is the same.
 */

/** How many nodes are looked at in a step of work that can wait: some milliseconds. */
const STEP_NODES = 1 << 17;

/**
 * A function of a path and what is below it is as often there as it is called. Without recursion, it is there once:
 * what an inner call calls is below the outer one. Pauses after each step.
 * @param {Profile} profile
 * @param {Int32Array} shown
 * @param {[number, number][]} ranges The nodes that are shown.
 * @returns {Generator<undefined, Nodes>}
 */
function* withoutRecursion(profile, shown, ranges) {
  const { fn, parent, last } = profile;
  const size = parent.length;
  /** The node that each node is shown as: itself, or the outer call. */
  const outer = new Int32Array(size);
  const depth = new Int32Array(size);
  // The way to the last node by depth, and the node of each function that was on it last.
  const way = new Int32Array(profile.maxDepth + 1);
  const nodeOnWay = new Int32Array(profile.header.functions.length + profile.header.modules.length);
  for (const [first, end] of ranges) {
    for (let n = first; n <= end; n++) {
      if (n % STEP_NODES === 0) yield;
      const above = outer[parent[n]];
      // What an inner call calls is elsewhere on the way than what comes after.
      for (let at = above; way[depth[at]] !== at; at = outer[parent[at]]) {
        way[depth[at]] = at;
        if (shown[fn[at]] >= 0) nodeOnWay[shown[fn[at]]] = at;
      }
      const function_ = shown[fn[n]];
      const same = function_ < 0 ? 0 : nodeOnWay[function_];
      if (same > 0 && last[same] >= n && depth[same] <= depth[above] && way[depth[same]] === same) {
        outer[n] = same;
        continue;
      }
      outer[n] = n;
      way[(depth[n] = depth[above] + 1)] = n;
      if (function_ >= 0) nodeOnWay[function_] = n;
    }
  }
  const sizes = new Int32Array(size);
  for (let n = size - 1; n > 0; n--) {
    if (n % STEP_NODES === 0) yield;
    if (outer[n] === n) sizes[outer[parent[n]]] += sizes[n] += 1;
  }
  const count = sizes[0] + 1;
  const map = new Int32Array(size);
  const nodes = {
    fn: new Int32Array(count),
    parent: new Int32Array(count),
    last: new Int32Array(count),
    flags: new Uint8Array(count),
    map,
  };
  nodes.last[0] = count - 1;
  /** The place of the next callee of each node. */
  const next = depth;
  next[0] = 1;
  for (let n = 1; n < size; n++) {
    if (n % STEP_NODES === 0) yield;
    if (outer[n] === n) {
      const caller = outer[parent[n]];
      const to = next[caller];
      next[caller] += sizes[n];
      next[n] = to + 1;
      map[n] = to;
      nodes.fn[to] = fn[n];
      nodes.parent[to] = map[caller];
      nodes.last[to] = to + sizes[n] - 1;
      nodes.flags[to] = profile.flags[n];
    } else map[n] = map[outer[n]];
  }
  return nodes;
}

/**
 * The weight of all nodes before each node; last of all of them.
 * @param {Profile} profile
 * @param {Int32Array} samples
 * @param {Nodes} nodes
 */
export function weightsBefore(profile, samples, nodes) {
  const { node, weight } = profile;
  const { map } = nodes;
  const before = new Float64Array(nodes.parent.length + 1);
  if (map) for (const sample of samples) before[map[node[sample]] + 1] += weight[sample];
  else for (const sample of samples) before[node[sample] + 1] += weight[sample];
  for (let n = 1; n < before.length; n++) before[n] += before[n - 1];
  return before;
}

/**
 * The weights that were summed last of some samples: transforms mostly do not change them.
 * @type {WeakMap<Int32Array, {nodes: Nodes, before: Float64Array}>}
 */
const lastWeights = new WeakMap();

/**
 * @typedef {object} GrowingNode
 * @property {number} fn
 * @property {number} parent
 * @property {number} total
 * @property {number} own
 * @property {number} spliced
 * @property {number} guessed
 * @property {boolean} isInlined
 * @property {number | null} start
 * @property {number[] | null} children Null if they are not made yet.
 */

/** A tree that is made where it is looked at. */
class GrowingTree {
  constructor() {
    /**
     * By number.
     * @type {Map<number, GrowingNode>}
     */
    this.nodes = new Map();
  }

  /**
   * @param {number} id
   * @param {number} fn
   * @param {number} parent
   */
  make(id, fn, parent) {
    /** @type {GrowingNode} */
    const node = { fn, parent, total: 0, own: 0, spliced: 0, guessed: 0, isInlined: false, start: null, children: null };
    this.nodes.set(id, node);
    return node;
  }

  /** @param {number} node */
  node(node) {
    return /** @type {GrowingNode} */ (this.nodes.get(node));
  }

  /** @param {number} node */
  fn(node) {
    return this.node(node).fn;
  }

  /** @param {number} node */
  parent(node) {
    return this.node(node).parent;
  }

  /** @param {number} node */
  total(node) {
    return this.node(node).total;
  }

  /** @param {number} node */
  own(node) {
    return this.node(node).own;
  }

  /** @param {number} node */
  spliced(node) {
    return this.node(node).spliced;
  }

  /** @param {number} node */
  guessed(node) {
    return this.node(node).guessed;
  }

  /** @param {number} node */
  isInlined(node) {
    return this.node(node).isInlined;
  }

  /** @param {number} node */
  start(node) {
    return this.node(node).start;
  }

  /** @param {number} node */
  has(node) {
    return this.nodes.has(node);
  }
}

/**
 * The paths without recursion that were made last of each profile, or are being made.
 * @type {WeakMap<Profile, {key: string, steps: Generator<undefined, Nodes>, nodes: Nodes | null}>}
 */
const lastCollapsed = new WeakMap();

/**
 * The tree of callees, after the transforms, with the weights of samples. Each node stands for nodes of the profile,
 * and has the number of the first.
 * @implements {Tree}
 */
export class CalleeTree extends GrowingTree {
  /**
   * @param {Profile} profile
   * @param {Int32Array} samples
   * @param {Transform[]} transforms
   * @param {boolean} collapsesRecursion
   */
  constructor(profile, samples, transforms, collapsesRecursion) {
    super();
    this.profile = profile;
    /** For each function, what is shown for it. */
    this.shown = shownFunctions(profile, transforms);
    const starts = focusedNodes(profile, transforms);
    /**
     * The first and last nodes of what is shown, ascending.
     * @type {[number, number][]}
     */
    this.ranges = starts ? starts.map((n) => [n, profile.last[n]]) : [[1, profile.nodeCount]];
    /** Whether each node of the profile is in a focus; null without one. */
    this.isFocused = starts ? new Uint8Array(profile.nodeCount + 1) : null;
    for (const [first, end] of starts ? this.ranges : []) this.isFocused?.fill(1, first, end + 1);
    /** The samples that are shown. */
    this.samples = starts ? samples.filter((sample) => this.isFocused?.[profile.node[sample]] === 1) : samples;
    /** @type {Nodes} */
    this.base = profile;
    this.transforms = JSON.stringify(transforms);
    if (collapsesRecursion) {
      let nodes = null;
      while (!nodes) nodes = this.stepTowardsCollapsed();
      this.base = nodes;
      this.ranges = [[1, this.base.parent.length - 1]];
    }
    let weights = lastWeights.get(this.samples);
    if (weights?.nodes !== this.base) {
      weights = { nodes: this.base, before: weightsBefore(profile, this.samples, this.base) };
      lastWeights.set(this.samples, weights);
    }
    this.before = weights.before;
    /**
     * Whether each node of the base begins what is shown; null for all that have no caller.
     * @type {Uint8Array | null}
     */
    this.isStart = null;
    /**
     * The nodes of the base that each node stands for.
     * @type {Map<number, number[]>}
     */
    this.entries = new Map();
    const { header } = profile;
    /** For each function, its group while callees are grouped. */
    this.groups = new Int32Array(header.functions.length + header.modules.length).fill(-1);
    this.begin(this.before[this.before.length - 1]);
  }

  /** Does a step of the work for a tree without recursion, of which this is the other. Returns its nodes after the last. */
  stepTowardsCollapsed() {
    let last = lastCollapsed.get(this.profile);
    if (last?.key !== this.transforms) {
      last = { key: this.transforms, steps: withoutRecursion(this.profile, this.shown, this.ranges), nodes: null };
      lastCollapsed.set(this.profile, last);
    }
    return (last.nodes ??= last.steps.next().value ?? null);
  }

  /**
   * The tree below the outermost calls of a function.
   * @param {number} fn
   * @returns {CalleeTree}
   */
  focused(fn) {
    /** @type {CalleeTree} */
    const tree = Object.create(this);
    tree.ranges = this.outermost((other) => other === fn).map((n) => [n, this.base.last[n]]);
    tree.begin(tree.ranges.reduce((sum, [n]) => sum + this.weightBelow(n), 0));
    return tree;
  }

  /**
   * Begins at the root.
   * @param {number} total
   */
  begin(total) {
    this.isStart = this.ranges.length === 1 && this.ranges[0][0] === 1 ? null : new Uint8Array(this.base.parent.length);
    for (const [first] of this.ranges) if (this.isStart) this.isStart[first] = 1;
    this.entries = new Map();
    this.nodes = new Map();
    this.make(0, -1, -1).total = total;
  }

  /**
   * The weight of a node of the base with all below it.
   * @param {number} n
   */
  weightBelow(n) {
    return this.before[this.base.last[n] + 1] - this.before[n];
  }

  /** @param {number} node */
  children(node) {
    const it = this.node(node);
    if (it.children) return it.children;
    const { fn, last, flags } = this.base;
    const { shown, before, groups, profile } = this;
    const entries = this.entries.get(node);
    /** @type {[number, number][]} */
    const ranges = entries ? entries.map((n) => [n + 1, last[n]]) : this.ranges;
    for (const n of entries ?? []) it.own += before[n + 1] - before[n];
    /** @type {number[]} */
    const children = [];
    for (const [first, end] of ranges) {
      for (let n = first; n <= end; n++) {
        const total = before[last[n] + 1] - before[n];
        const function_ = shown[fn[n]];
        if (total === 0) n = last[n];
        else if (function_ < 0 || (function_ === it.fn && profile.isModule(function_))) it.own += before[n + 1] - before[n];
        else {
          let child = groups[function_];
          if (child < 0) {
            children.push((child = groups[function_] = n));
            this.make(n, function_, node);
            this.entries.set(n, []);
          }
          const made = this.node(child);
          this.entries.get(child)?.push(n);
          made.total += total;
          if (flags[n] & SPLICED) made.spliced += total;
          if (flags[n] & GUESSED) made.guessed += total;
          if (flags[n] & INLINED) made.isInlined = true;
          n = last[n];
        }
      }
    }
    for (const child of children) groups[this.fn(child)] = -1;
    return (it.children = children.sort((a, b) => this.total(b) - this.total(a) || a - b));
  }

  /** @param {number} node */
  isLeaf(node) {
    return this.children(node).length === 0;
  }

  /** @param {number} node */
  own(node) {
    this.children(node);
    return this.node(node).own;
  }

  /**
   * Whether there is such a node. The way to it is opened.
   * @param {number} node
   */
  has(node) {
    const { fn, parent } = this.base;
    if (this.nodes.has(node) || node < 0 || node >= parent.length) return this.nodes.has(node);
    /** @type {number[]} */
    const path = [];
    for (let n = node; n > 0; n = parent[n]) path.push(this.shown[fn[n]]);
    let at = 0;
    for (const wanted of path.reverse()) at = this.children(at).find((child) => this.fn(child) === wanted) ?? at;
    return this.nodes.has(node);
  }

  /**
   * The node of the base that is shown as the caller of one; 0 for none.
   * @param {number} n
   */
  callerOf(n) {
    const { shown, isStart } = this;
    const { fn, parent } = this.base;
    const callee = shown[fn[n]];
    while (!isStart || isStart[n] === 0) {
      n = parent[n];
      if (n === 0) break;
      const function_ = shown[fn[n]];
      if (function_ >= 0 && (function_ !== callee || !this.profile.isModule(callee))) return n;
    }
    return 0;
  }

  /**
   * The node of the base that is shown for one: itself, or the caller of a hidden one; 0 for none.
   * @param {number} n
   */
  shownNode(n) {
    return n === 0 || this.shown[this.base.fn[n]] >= 0 ? n : this.callerOf(n);
  }

  /**
   * The nodes of the base that are shown from the root to a node of the profile.
   * @param {number} node
   */
  pathTo(node) {
    /** @type {number[]} */
    const path = [];
    if (this.isFocused && !this.isFocused[node]) return path;
    const { map } = this.base;
    for (let n = this.shownNode(map ? map[node] : node); n > 0; n = this.callerOf(n)) path.push(n);
    return path.reverse();
  }

  /**
   * Own and total weights by a property of functions. A path counts once for each value.
   * @param {number} count The number of values.
   * @param {(fn: number) => number} of
   */
  weightsBy(count, of) {
    const own = new Float64Array(count);
    const total = new Float64Array(count);
    const { before } = this;
    const { fn, parent, last } = this.base;
    const values = this.shown.map((function_) => (function_ < 0 ? -1 : of(function_)));
    /** The value of each node, or of the nearest shown caller of a hidden one; null if none is hidden. */
    const near = values.includes(-1) ? new Int32Array(parent.length).fill(-1) : null;
    /** The last node below the outermost one with a value. */
    const until = new Int32Array(count).fill(-1);
    for (const [first, end] of this.ranges) {
      for (let n = first; n <= end; n++) {
        const weight = before[last[n] + 1] - before[n];
        if (weight === 0) {
          n = last[n];
          continue;
        }
        let value = values[fn[n]];
        if (near) near[n] = value = value < 0 && n > first ? near[parent[n]] : value;
        if (value < 0) continue;
        own[value] += before[n + 1] - before[n];
        if (n > until[value]) {
          total[value] += weight;
          until[value] = last[n];
        }
      }
    }
    return { own, total };
  }

  /**
   * The outermost nodes of the base with wanted functions.
   * @param {(fn: number) => boolean} isWanted
   */
  outermost(isWanted) {
    const { fn, last } = this.base;
    const { before } = this;
    const wanted = Uint8Array.from(this.shown, (function_) => Number(function_ >= 0 && isWanted(function_)));
    /** @type {number[]} */
    const found = [];
    for (const [first, end] of this.ranges) {
      for (let n = first; n <= end; n++) {
        const isFound = wanted[fn[n]] === 1;
        if (before[last[n] + 1] === before[n]) n = last[n];
        else if (isFound) {
          found.push(n);
          n = last[n];
        }
      }
    }
    return found;
  }

  /**
   * The weight of the paths with a wanted function.
   * @param {(fn: number) => boolean} isWanted
   */
  weightWith(isWanted) {
    return this.outermost(isWanted).reduce((sum, n) => sum + this.weightBelow(n), 0);
  }
}

/**
 * The outermost nodes of focused functions, each below those of the ones before; null without a focus.
 * @param {Profile} profile
 * @param {Transform[]} transforms
 */
function focusedNodes(profile, transforms) {
  const focus = transforms.filter((it) => it.kind === "focus").map((it) => profile.functionByKey.get(it.what) ?? -1);
  if (focus.length === 0) return null;
  const { fn, last } = profile;
  /** @type {number[]} */
  const found = [];
  /**
   * The ends of the focused nodes around the current one.
   * @type {number[]}
   */
  const open = [];
  for (let n = 1; n <= profile.nodeCount; n++) {
    while (open.length > 0 && open[open.length - 1] < n) open.pop();
    if (fn[n] !== focus[open.length]) continue;
    if (open.length + 1 < focus.length) open.push(last[n]);
    else {
      found.push(n);
      n = last[n];
    }
  }
  return found;
}

/**
 * For each function, what is shown for it: itself, its module, or -1 for nothing. The order of
 * transforms does not matter: a hidden function is not shown by its module either.
 * @param {Profile} profile
 * @param {Transform[]} transforms
 */
function shownFunctions(profile, transforms) {
  const functions = profile.header.functions;
  const shown = Int32Array.from(functions, (_, id) => id);
  for (const { kind, what } of transforms) {
    const fn = profile.functionByKey.get(what);
    const module = profile.header.modules.indexOf(what);
    if (kind === "hide" && fn !== undefined) shown[fn] = -1;
    if (kind === "module" && module >= 0) {
      functions.forEach((it, id) => {
        if (it.module === module && shown[id] >= 0) shown[id] = functions.length + module;
      });
    }
  }
  return shown;
}

/**
 * Nodes of the base of a tree of callees, and a weight of each.
 * @typedef {{nodes: Int32Array, weights: Float64Array}} Entries
 */

/**
 * The tree of callers: from the innermost functions, or from one function, to the root.
 * @implements {Tree}
 */
export class CallerTree extends GrowingTree {
  /**
   * @param {CalleeTree} tree
   * @param {number | null} fn
   */
  constructor(tree, fn) {
    super();
    this.tree = tree;
    /** For each function, its group while entries are grouped. */
    this.groups = new Int32Array(tree.groups.length).fill(-1);
    /**
     * By node.
     * @type {Entries[]}
     */
    this.entries = [];
    const entries = fn === null ? this.innermost() : this.callsOf(fn);
    const root = this.add(-1, -1, { nodes: new Int32Array(0), weights: new Float64Array(0) });
    this.node(root).total = fn === null ? tree.total(0) : entries.weights.reduce((a, b) => a + b, 0);
    this.node(root).children = this.group(root, entries);
  }

  /**
   * The nodes with a weight of their own, which counts for the caller if they are hidden.
   * @returns {Entries}
   */
  innermost() {
    const { tree } = this;
    const { before, ranges, samples } = tree;
    const hasHidden = tree.shown.includes(-1);
    const [nodes, weights] = [new Int32Array(samples.length), new Float64Array(samples.length)];
    let length = 0;
    for (const [first, end] of ranges) {
      for (let n = first; n <= end; n++) {
        const weight = before[n + 1] - before[n];
        if (weight === 0) continue;
        nodes[length] = hasHidden ? tree.shownNode(n) : n;
        weights[length++] = weight;
      }
    }
    return { nodes: nodes.subarray(0, length), weights: weights.subarray(0, length) };
  }

  /**
   * The outermost calls of a function.
   * @param {number} fn
   * @returns {Entries}
   */
  callsOf(fn) {
    const nodes = Int32Array.from(this.tree.outermost((other) => other === fn));
    return { nodes, weights: Float64Array.from(nodes, (n) => this.tree.weightBelow(n)) };
  }

  /**
   * @param {number} parent
   * @param {number} fn
   * @param {Entries} entries
   */
  add(parent, fn, entries) {
    const { flags } = this.tree.base;
    const it = this.make(this.entries.length, fn, parent);
    const { nodes, weights } = entries;
    for (let n = 0; n < nodes.length; n++) {
      const flag = flags[nodes[n]];
      it.total += weights[n];
      if (flag & SPLICED) it.spliced += weights[n];
      if (flag & GUESSED) it.guessed += weights[n];
      if (flag & INLINED) it.isInlined = true;
    }
    return this.entries.push(entries) - 1;
  }

  /**
   * Makes a node for each function of entries; those without a node (0) are left out.
   * @param {number} parent
   * @param {Entries} entries
   */
  group(parent, entries) {
    const { groups, tree } = this;
    const { shown, base } = tree;
    /** @type {number[]} */
    const functions = [];
    /** @type {number[]} */
    const counts = [];
    for (const node of entries.nodes) {
      if (node === 0) continue;
      const fn = shown[base.fn[node]];
      if (groups[fn] < 0) {
        groups[fn] = functions.push(fn) - 1;
        counts.push(0);
      }
      counts[groups[fn]] += 1;
    }
    const nodes = new Int32Array(entries.nodes.length);
    const weights = new Float64Array(entries.nodes.length);
    let end = 0;
    /** The place of the next entry of each group. */
    const next = counts.map((count) => (end += count) - count);
    for (let n = 0; n < entries.nodes.length; n++) {
      const node = entries.nodes[n];
      if (node === 0) continue;
      const to = next[groups[shown[base.fn[node]]]]++;
      nodes[to] = node;
      weights[to] = entries.weights[n];
    }
    const children = functions.map((fn, group) => {
      groups[fn] = -1;
      const [from, to] = [next[group] - counts[group], next[group]];
      return this.add(parent, fn, { nodes: nodes.subarray(from, to), weights: weights.subarray(from, to) });
    });
    return children.sort((a, b) => this.total(b) - this.total(a));
  }

  /** @param {number} node */
  isLeaf(node) {
    const { children } = this.node(node);
    return children ? children.length === 0 : this.entries[node].nodes.every((n) => this.tree.callerOf(n) === 0);
  }

  /** @param {number} node */
  children(node) {
    const it = this.node(node);
    if (!it.children) {
      const { nodes, weights } = this.entries[node];
      const callers = new Int32Array(nodes.length);
      for (let n = 0; n < nodes.length; n++) callers[n] = this.tree.callerOf(nodes[n]);
      it.children = this.group(node, { nodes: callers, weights });
    }
    return it.children;
  }
}

/**
 * Stacks by time, without merging: one at each of some times. Times without a sample are left out.
 * Weights are microseconds.
 * @implements {Tree}
 */
export class TimeTree extends GrowingTree {
  /**
   * @param {Profile} profile
   * @param {CalleeTree} tree
   * @param {Int32Array} samples Of one thread, by time.
   * @param {number} columns The number of times.
   */
  constructor(profile, tree, samples, columns) {
    super();
    /** When each sample ends. */
    const ends = new Float64Array(samples.length);
    let length = 0;
    for (let n = 0; n < samples.length; n++) {
      const before = n > 0 ? profile.time[samples[n - 1]] : -Infinity;
      length += profile.time[samples[n]] - Math.max(profile.beginOf(samples[n]), before);
      ends[n] = length;
    }
    const { base, shown } = tree;
    this.add(-1, -1, 0).total = length;
    /**
     * The open nodes, by depth.
     * @type {number[]}
     */
    const open = [0];
    /**
     * The nodes of the other tree's base.
     * @type {number[]}
     */
    let path = [];
    let at = 0;
    let previous = -1;
    for (let column = 0; column < columns; column++) {
      const begin = (length * column) / columns;
      const end = (length * (column + 1)) / columns;
      while (at + 1 < samples.length && ends[at] < (begin + end) / 2) at += 1;
      if (at !== previous) path = tree.pathTo(profile.node[samples[at]]);
      previous = at;
      let depth = 0;
      const isSame = (/** @type {number} */ n) => this.fn(open[n + 1]) === shown[base.fn[path[n]]];
      while (depth < path.length && depth + 1 < open.length && isSame(depth)) depth += 1;
      open.length = depth + 1;
      for (; depth < path.length; depth++) {
        const id = this.nodes.size;
        this.add(open[depth], shown[base.fn[path[depth]]], begin).isInlined = (base.flags[path[depth]] & INLINED) !== 0;
        this.node(open[depth]).children?.push(id);
        open.push(id);
      }
      for (let n = 1; n < open.length; n++) {
        const it = this.node(open[n]);
        const flags = base.flags[path[n - 1]];
        it.total = end - (it.start ?? 0);
        if (flags & SPLICED) it.spliced += end - begin;
        if (flags & GUESSED) it.guessed += end - begin;
      }
    }
  }

  /**
   * @param {number} parent
   * @param {number} fn
   * @param {number} start
   */
  add(parent, fn, start) {
    const it = this.make(this.nodes.size, fn, parent);
    it.start = start;
    it.children = [];
    return it;
  }

  /** @param {number} node */
  isLeaf(node) {
    return this.children(node).length === 0;
  }

  /** @param {number} node */
  children(node) {
    return this.node(node).children ?? [];
  }
}

/**
 * The nodes from the root to a node, without the root.
 * @param {{parent: (node: number) => number}} tree
 * @param {number} node
 */
export function pathOf(tree, node) {
  /** @type {number[]} */
  const path = [];
  for (; node > 0; node = tree.parent(node)) path.push(node);
  return path.reverse();
}

/**
 * How complete the stacks of samples are: as `Completeness` in Rust.
 * @param {Profile} profile
 * @param {Int32Array} samples
 */
export function completeness(profile, samples) {
  const result = { complete: 0, guessed: 0, spliced: 0, incomplete: 0, kernelThreads: 0, noUserRegisters: 0 };
  /** @type {Map<string, number>} */
  const reasons = new Map();
  const { ends } = profile.header;
  /** The number of samples by end, and by the flags of their stacks. */
  const counts = new Int32Array(ends.length << 2);
  for (const sample of samples) {
    const end = profile.state[sample] & END;
    counts[(end << 2) | (profile.pathFlags[profile.node[sample]] & (SPLICED | GUESSED))] += 1;
    if (!ends[end].has_user_stack || ends[end].is_root) continue;
    const module = outermostModule(profile, profile.node[sample]);
    const reason = module ? `${ends[end].reason} in ${module}` : ends[end].reason;
    reasons.set(reason, (reasons.get(reason) ?? 0) + 1);
  }
  const firstWithout = ends.findIndex((it) => !it.has_user_stack);
  counts.forEach((count, key) => {
    const end = ends[key >> 2];
    if (!end.has_user_stack) {
      if (key >> 2 === firstWithout) result.kernelThreads += count;
      else result.noUserRegisters += count;
    } else if (!end.is_root) result.incomplete += count;
    else if (key & SPLICED) result.spliced += count;
    else {
      result.complete += count;
      if (key & GUESSED) result.guessed += count;
    }
  });
  return { ...result, reasons: [...reasons].sort((a, b) => b[1] - a[1]) };
}

/**
 * A share in percent, rounded down: only the whole is 100 %, and only nothing is 0 %.
 * @param {number} part
 * @param {number} of
 */
export function shareOf(part, of) {
  if (part === of && of > 0) return "100 %";
  const hundredths = Math.floor((10_000 * part) / (of || 1));
  return hundredths === 0 && part > 0 ? "less than 0.01 %" : `${(hundredths / 100).toFixed(2)} %`;
}

/**
 * @param {Profile} profile
 * @param {number} node
 */
function outermostModule(profile, node) {
  if (node === 0) return "";
  // The last of the outermost nodes that is not after it.
  const { outermost } = profile;
  let [low, high] = [0, outermost.length];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (outermost[middle] <= node) low = middle;
    else high = middle;
  }
  return profile.moduleName(profile.fn[outermost[low]]);
}

/**
 * What a search finds: a text in any case, or a regular expression between slashes.
 * @param {string} search
 * @returns {((text: string) => boolean) | null}
 */
export function matcher(search) {
  if (search === "") return null;
  const expression = search.match(/^\/(.+)\/(i?)$/);
  if (expression) {
    try {
      const regex = new RegExp(expression[1], expression[2]);
      return (text) => regex.test(text);
    } catch {
      return () => false;
    }
  }
  const wanted = search.toLowerCase();
  return (text) => text.toLowerCase().includes(wanted);
}

/**
 * A name without the arguments of templates and generics.
 * @param {string} name
 */
export function withoutTemplateArguments(name) {
  let depth = 0;
  let short = "";
  for (let n = 0; n < name.length; n++) {
    const letter = name[n];
    if (letter === "<" || letter === ">") {
      // As long as the longest operator's name.
      const before = name.slice(Math.max(n - "operator<=>".length, 0), n);
      const isOperator = /(operator(<=?>?|<<|>|>>|->)?|-|=)$/.test(before);
      if (letter === "<" && !isOperator && /[^\s(&*]$/.test(before)) {
        if (depth++ === 0) short += "<…>";
        continue;
      }
      if (letter === ">" && !isOperator && depth > 0) {
        depth -= 1;
        continue;
      }
    }
    if (depth === 0) short += letter;
  }
  return short;
}
