// Weights of the selected samples, as trees and lists.

import { GUESSED, INLINED, SPLICED, Profile } from "./profile.mjs";

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
  const selected = new Int32Array(profile.sampleCount);
  const [ofAnyState, isOffWanted, onAnyCpu] = [state.state === "all", state.state === "off", cpus.size === 0];
  let count = 0;
  for (let thread = 0; thread + 1 < profile.threadStart.length; thread++) {
    if (threads.size > 0 && !threads.has(thread)) continue;
    const [first, last] = [profile.threadStart[thread], profile.threadStart[thread + 1]];
    const end = state.to === null ? last : firstFrom(profile.time, state.to, first, last);
    for (let n = state.from === null ? first : firstFrom(profile.time, state.from, first, last); n < end; n++) {
      if (!ofAnyState && profile.isOff(n) !== isOffWanted) continue;
      if (!onAnyCpu && !cpus.has(profile.cpu[n])) continue;
      if (state.wait !== "" && profile.waitOf(n) !== state.wait) continue;
      selected[count++] = n;
    }
  }
  return selected.subarray(0, count);
}

/**
 * The first of ascending numbers that is not below a limit.
 * @param {import("./profile.mjs").Numbers} numbers
 * @param {number} limit
 * @param {number} first
 * @param {number} end
 */
function firstFrom(numbers, limit, first, end) {
  while (first < end) {
    const middle = (first + end) >> 1;
    if (numbers[middle] < limit) first = middle + 1;
    else end = middle;
  }
  return first;
}

/**
 * The samples of the thread that has the greatest weight of some samples.
 * @param {Profile} profile
 * @param {Int32Array} samples
 */
export function ofHeaviestThread(profile, samples) {
  let found = { thread: 0, samples: samples.subarray(0, 0) };
  let greatest = -1;
  for (let thread = 0; thread + 1 < profile.threadStart.length; thread++) {
    const first = firstFrom(samples, profile.threadStart[thread], 0, samples.length);
    const end = firstFrom(samples, profile.threadStart[thread + 1], first, samples.length);
    let sum = 0;
    for (let n = first; n < end; n++) sum += profile.weight[samples[n]];
    if (sum > greatest && end > first) [found, greatest] = [{ thread, samples: samples.subarray(first, end) }, sum];
  }
  return found;
}

/**
 * The weight of what samples wait for, by the number of the reason.
 * @param {Profile} profile
 * @param {Int32Array} samples
 */
export function waitWeights(profile, samples) {
  const own = new Float64Array(profile.header.waits.length);
  for (const sample of samples) {
    const wait = profile.waitIndex(sample);
    if (wait >= 0 && wait < own.length) own[wait] += profile.weight[sample];
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

/** How many nodes or samples are looked at in a step of work that can wait: some milliseconds. */
const STEP_NODES = 1 << 17;
/** How many times of a graph by time are looked at. */
const STEP_COLUMNS = 100;

/**
 * Work in steps: done while the browser is idle, or at once when its result is needed.
 * @template T
 */
export class Work {
  /** @param {Generator<undefined, T>} steps */
  constructor(steps) {
    this.steps = steps;
    /** @type {T | null} */
    this.result = null;
  }

  /** Does a step; after the last one, nothing. */
  step() {
    this.result ??= this.steps.next().value ?? null;
  }

  /** Does the rest. */
  finish() {
    while (this.result === null) this.step();
    return this.result;
  }
}

/**
 * A function of a path and what is below it is as often there as it is called. Without recursion, it is there once:
 * what an inner call calls is below the outer one.
 */
class RecursionRemoval {
  /**
   * @param {Profile} profile
   * @param {Int32Array} shown
   */
  constructor(profile, shown) {
    const size = profile.nodeCount + 1;
    this.profile = profile;
    this.shown = shown;
    /** The node that each node is shown as: itself, or the outer call. */
    this.outer = new Int32Array(size);
    this.depth = new Int32Array(size);
    /** The way to the last node by depth, and the node of each function that was on it last. */
    this.way = new Int32Array(profile.maxDepth + 1);
    this.nodeOnWay = new Int32Array(profile.header.functions.length + profile.header.modules.length);
    this.hasInner = false;
    /** The number of nodes that are left below each one, with itself. */
    this.sizes = new Int32Array(0);
    this.map = new Int32Array(0);
    /** @type {Nodes} */
    this.nodes = profile;
  }

  /**
   * Finds the outer calls, node by node in their order.
   * @param {number} first
   * @param {number} end
   */
  find(first, end) {
    const { fn, parent, last } = this.profile;
    const { shown, outer, depth, way, nodeOnWay } = this;
    for (let n = first; n < end; n++) {
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
        this.hasInner = true;
        continue;
      }
      outer[n] = n;
      way[(depth[n] = depth[above] + 1)] = n;
      if (function_ >= 0) nodeOnWay[function_] = n;
    }
  }

  /**
   * Counts the nodes that are left, from the last one back.
   * @param {number} first
   * @param {number} end
   */
  count(first, end) {
    const { outer, sizes } = this;
    const { parent } = this.profile;
    for (let n = end - 1; n >= first; n--) if (outer[n] === n) sizes[outer[parent[n]]] += sizes[n] += 1;
  }

  /** Makes room for the nodes that are left. */
  prepare() {
    const count = this.sizes[0] + 1;
    const numbers = () => new Int32Array(count);
    this.map = new Int32Array(this.outer.length);
    this.nodes = { fn: numbers(), parent: numbers(), last: numbers(), flags: new Uint8Array(count), map: this.map };
    this.nodes.last[0] = count - 1;
    this.depth[0] = 1;
  }

  /**
   * Puts nodes in their places.
   * @param {number} first
   * @param {number} end
   */
  place(first, end) {
    const { outer, sizes, nodes, map, depth: next } = this;
    const { fn, parent, flags } = this.profile;
    for (let n = first; n < end; n++) {
      if (outer[n] !== n) {
        map[n] = map[outer[n]];
        continue;
      }
      // The place of the next callee of each node.
      const caller = outer[parent[n]];
      const to = next[caller];
      next[caller] += sizes[n];
      next[n] = to + 1;
      map[n] = to;
      nodes.fn[to] = fn[n];
      nodes.parent[to] = map[caller];
      nodes.last[to] = to + sizes[n] - 1;
      nodes.flags[to] = flags[n];
    }
  }
}

/**
 * The nodes without recursion. Pauses after each step.
 * @param {Profile} profile
 * @param {Int32Array} shown
 * @param {[number, number][]} ranges The nodes that are shown.
 * @returns {Generator<undefined, Nodes>}
 */
function* withoutRecursion(profile, shown, ranges) {
  const work = new RecursionRemoval(profile, shown);
  const size = profile.nodeCount + 1;
  for (const [first, last] of ranges) {
    for (let n = first; n <= last; n += STEP_NODES) {
      work.find(n, Math.min(n + STEP_NODES, last + 1));
      yield;
    }
  }
  const isAll = ranges.length === 1 && ranges[0][0] === 1;
  if (isAll && !work.hasInner) return profile;
  work.sizes = new Int32Array(size);
  for (let n = size; n > 1; n -= STEP_NODES) {
    work.count(Math.max(n - STEP_NODES, 1), n);
    yield;
  }
  work.prepare();
  for (let n = 1; n < size; n += STEP_NODES) {
    work.place(n, Math.min(n + STEP_NODES, size));
    yield;
  }
  return work.nodes;
}

/** The weights of some samples, by node. */
export class NodeWeights {
  /**
   * @param {Int32Array} samples
   * @param {Nodes} nodes
   * @param {Float64Array} before Zeros.
   */
  constructor(samples, nodes, before) {
    this.samples = samples;
    this.last = nodes.last;
    this.map = nodes.map;
    /** The weight of the samples at all nodes before each one, in preorder; last at all nodes. */
    this.before = before;
    this.total = 0;
  }

  /**
   * Sums the weights of samples. What was summed before for the same nodes is not used any more.
   * @param {Profile} profile
   * @param {Int32Array} samples
   * @param {Nodes} nodes
   */
  static of(profile, samples, nodes) {
    return new Work(NodeWeights.steps(profile, samples, nodes)).finish();
  }

  /**
   * The same in steps.
   * @param {Profile} profile
   * @param {Int32Array} samples
   * @param {Nodes} nodes
   * @returns {Generator<undefined, NodeWeights>}
   */
  static *steps(profile, samples, nodes) {
    const last = lastWeights.get(nodes);
    if (last?.samples === samples) return last;
    // Its memory is used again: for a million paths, new memory takes longer than the sums.
    lastWeights.delete(nodes);
    const before = last?.before.fill(0) ?? new Float64Array(nodes.parent.length + 1);
    const made = new NodeWeights(samples, nodes, before);
    for (let n = 0; n < samples.length; n += STEP_NODES) {
      made.add(profile, n, Math.min(n + STEP_NODES, samples.length));
      yield;
    }
    for (let n = 0; n < before.length; n += STEP_NODES) {
      made.sum(n, Math.min(n + STEP_NODES, before.length));
      yield;
    }
    lastWeights.set(nodes, made);
    return made;
  }

  /**
   * Adds samples to their nodes.
   * @param {Profile} profile
   * @param {number} first
   * @param {number} end
   */
  add({ node, weight }, first, end) {
    const { samples, map, before } = this;
    for (let n = first; n < end; n++) {
      const at = node[samples[n]];
      before[(map ? map[at] : at) + 1] += weight[samples[n]];
    }
  }

  /**
   * Adds up nodes.
   * @param {number} first
   * @param {number} end
   */
  sum(first, end) {
    const { before } = this;
    let { total } = this;
    for (let n = first; n < end; n++) before[n] = total += before[n];
    this.total = total;
  }

  /**
   * The weight of the samples at a node.
   * @param {number} n
   */
  own(n) {
    return this.before[n + 1] - this.before[n];
  }

  /**
   * The same with all below it.
   * @param {number} n
   */
  below(n) {
    return this.before[this.last[n] + 1] - this.before[n];
  }
}

/**
 * The weights that were summed last.
 * @type {WeakMap<Nodes, NodeWeights>}
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

/** Nodes that have all numbers from 0: as a map, but faster. */
class NodeList {
  constructor() {
    /** @type {GrowingNode[]} */
    this.all = [];
  }

  get size() {
    return this.all.length;
  }

  /** @param {number} node */
  has(node) {
    return node in this.all;
  }

  /** @param {number} node */
  get(node) {
    return this.all[node];
  }

  /**
   * @param {number} node
   * @param {GrowingNode} made
   */
  set(node, made) {
    this.all[node] = made;
  }
}

/** A tree that is made where it is looked at. */
class GrowingTree {
  /** @param {Map<number, GrowingNode> | NodeList} nodes */
  constructor(nodes) {
    /** By number. */
    this.nodes = nodes;
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
 * @type {WeakMap<Profile, {key: string, nodes: Work<Nodes>}>}
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
    super(new Map());
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
      this.base = this.collapsed().finish();
      this.ranges = [[1, this.base.parent.length - 1]];
    }
    this.weights = NodeWeights.of(profile, this.samples, this.base);
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
    this.begin(this.weights.total);
  }

  /** The nodes of the same tree without recursion. */
  collapsed() {
    let last = lastCollapsed.get(this.profile);
    if (last?.key !== this.transforms) {
      last = { key: this.transforms, nodes: new Work(withoutRecursion(this.profile, this.shown, this.ranges)) };
      lastCollapsed.set(this.profile, last);
    }
    return last.nodes;
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
    return this.weights.below(n);
  }

  /** @param {number} node */
  children(node) {
    const it = this.node(node);
    if (it.children) return it.children;
    const { fn, last, flags } = this.base;
    const { shown, weights, groups, profile } = this;
    const entries = this.entries.get(node);
    /** @type {[number, number][]} */
    const ranges = entries ? entries.map((n) => [n + 1, last[n]]) : this.ranges;
    for (const n of entries ?? []) it.own += weights.own(n);
    /** @type {number[]} */
    const children = [];
    for (const [first, end] of ranges) {
      for (let n = first; n <= end; n++) {
        const total = weights.below(n);
        const function_ = shown[fn[n]];
        if (total === 0) n = last[n];
        else if (function_ < 0 || (function_ === it.fn && profile.isModule(function_))) it.own += weights.own(n);
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
    return new Work(this.weightSteps(count, of)).finish();
  }

  /**
   * The same in steps.
   * @param {number} count The number of values.
   * @param {(fn: number) => number} of
   * @returns {Generator<undefined, {own: Float64Array, total: Float64Array}>}
   */
  *weightSteps(count, of) {
    const own = new Float64Array(count);
    const total = new Float64Array(count);
    const { weights } = this;
    const { fn, parent, last } = this.base;
    const values = this.shown.map((function_) => (function_ < 0 ? -1 : of(function_)));
    /** The value of each node, or of the nearest shown caller of a hidden one; null if none is hidden. */
    const near = values.includes(-1) ? new Int32Array(parent.length).fill(-1) : null;
    /** The last node below the outermost one with a value. */
    const until = new Int32Array(count).fill(-1);
    /** Adds nodes. Returns the next one. */
    const add = (/** @type {number} */ first, /** @type {number} */ n, /** @type {number} */ end) => {
      for (; n < end; n++) {
        const weight = weights.below(n);
        if (weight === 0) {
          n = last[n];
          continue;
        }
        let value = values[fn[n]];
        if (near) near[n] = value = value < 0 && n > first ? near[parent[n]] : value;
        if (value < 0) continue;
        own[value] += weights.own(n);
        if (n > until[value]) {
          total[value] += weight;
          until[value] = last[n];
        }
      }
      return n;
    };
    for (const [first, end] of this.ranges) {
      for (let n = first; n <= end; ) {
        n = add(first, n, Math.min(n + STEP_NODES, end + 1));
        if (n <= end) yield;
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
    const { weights } = this;
    const wanted = Uint8Array.from(this.shown, (function_) => Number(function_ >= 0 && isWanted(function_)));
    /** @type {number[]} */
    const found = [];
    for (const [first, end] of this.ranges) {
      for (let n = first; n <= end; n++) {
        const isFound = wanted[fn[n]] === 1;
        if (weights.below(n) === 0) n = last[n];
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
 * Where the entries of a node are, and whether one has a caller.
 * @typedef {{all: EntryGroups, group: number, hasCaller: boolean}} EntryPlace
 */

/** How many groups of entries are looked for one by one. */
const MAX_SCANS = 3;

/** Entries in groups. Those of a group are put together when they are asked for: mostly, few are. */
class EntryGroups {
  /**
   * @param {Entries} entries
   * @param {Int32Array} groupOf The group of each entry; -1 for none.
   * @param {Int32Array} counts The number of entries of each group.
   */
  constructor(entries, groupOf, counts) {
    this.entries = entries;
    this.groupOf = groupOf;
    this.counts = counts;
    this.scans = 0;
    /**
     * All of them by group, and the end of each group.
     * @type {(Entries & {ends: Int32Array}) | null}
     */
    this.sorted = null;
  }

  /**
   * @param {number} group
   * @returns {Entries}
   */
  get(group) {
    if (!this.sorted && this.scans++ < MAX_SCANS) return this.scan(group);
    const { nodes, weights, ends } = (this.sorted ??= this.sort());
    const [from, to] = [ends[group] - this.counts[group], ends[group]];
    return { nodes: nodes.subarray(from, to), weights: weights.subarray(from, to) };
  }

  /** @param {number} group */
  scan(group) {
    const { entries, groupOf, counts } = this;
    const [nodes, weights] = [new Int32Array(counts[group]), new Float64Array(counts[group])];
    let at = 0;
    for (let n = 0; n < groupOf.length; n++) {
      if (groupOf[n] !== group) continue;
      nodes[at] = entries.nodes[n];
      weights[at++] = entries.weights[n];
    }
    return { nodes, weights };
  }

  sort() {
    const { entries, groupOf, counts } = this;
    const [nodes, weights] = [new Int32Array(groupOf.length), new Float64Array(groupOf.length)];
    /** The place of the next entry of each group. */
    const next = new Int32Array(counts.length);
    for (let group = 1; group < counts.length; group++) next[group] = next[group - 1] + counts[group - 1];
    for (let n = 0; n < groupOf.length; n++) {
      if (groupOf[n] < 0) continue;
      const to = next[groupOf[n]]++;
      nodes[to] = entries.nodes[n];
      weights[to] = entries.weights[n];
    }
    return { nodes, weights, ends: next };
  }
}

/** Makes nodes of a tree of callers: one for each function of entries. */
class EntryGrouping {
  /**
   * @param {CallerTree} callers
   * @param {Entries} entries
   */
  constructor(callers, entries) {
    this.callers = callers;
    this.entries = entries;
    this.groupOf = new Int32Array(entries.nodes.length).fill(-1);
    /**
     * By group.
     * @type {number[]}
     */
    this.functions = [];
    this.counts = new Int32Array(0);
    this.sums = { total: new Float64Array(0), spliced: new Float64Array(0), guessed: new Float64Array(0) };
    /** The flags of all entries of each group. */
    this.flags = new Uint8Array(0);
    /** Whether one has a caller. */
    this.hasCaller = new Uint8Array(0);
  }

  /**
   * Finds the groups of some entries.
   * @param {number} first
   * @param {number} end
   */
  find(first, end) {
    const { groupOf, functions } = this;
    const { nodes } = this.entries;
    const { groups, tree } = this.callers;
    const { shown } = tree;
    const { fn } = tree.base;
    for (let n = first; n < end; n++) {
      if (nodes[n] === 0) continue;
      const function_ = shown[fn[nodes[n]]];
      if (groups[function_] < 0) groups[function_] = functions.push(function_) - 1;
      groupOf[n] = groups[function_];
    }
  }

  /** Begins to sum, when all groups are found. */
  begin() {
    const { functions } = this;
    const sums = () => new Float64Array(functions.length);
    for (const fn of functions) this.callers.groups[fn] = -1;
    this.counts = new Int32Array(functions.length);
    this.sums = { total: sums(), spliced: sums(), guessed: sums() };
    this.flags = new Uint8Array(functions.length);
    this.hasCaller = new Uint8Array(functions.length);
  }

  /**
   * Sums some entries.
   * @param {number} first
   * @param {number} end
   */
  sum(first, end) {
    const { groupOf, counts, flags, hasCaller } = this;
    const { total, spliced, guessed } = this.sums;
    const { nodes, weights } = this.entries;
    const { tree } = this.callers;
    for (let n = first; n < end; n++) {
      const group = groupOf[n];
      if (group < 0) continue;
      const weight = weights[n];
      const flag = tree.base.flags[nodes[n]];
      counts[group] += 1;
      total[group] += weight;
      flags[group] |= flag;
      if (flag & SPLICED) spliced[group] += weight;
      if (flag & GUESSED) guessed[group] += weight;
      if (hasCaller[group] === 0 && tree.callerOf(nodes[n]) !== 0) hasCaller[group] = 1;
    }
  }

  /**
   * Makes the nodes: the greatest total first.
   * @param {number} parent
   */
  end(parent) {
    const { callers, functions, sums, flags, hasCaller } = this;
    const all = new EntryGroups(this.entries, this.groupOf, this.counts);
    const made = functions.map((fn, group) => {
      const id = callers.add(parent, fn, { all, group, hasCaller: hasCaller[group] === 1 });
      const [total, spliced, guessed] = [sums.total[group], sums.spliced[group], sums.guessed[group]];
      Object.assign(callers.node(id), { total, spliced, guessed, isInlined: (flags[group] & INLINED) !== 0 });
      return id;
    });
    return made.sort((a, b) => callers.total(b) - callers.total(a));
  }
}

/**
 * The tree of callers: from the innermost functions, or from one function, to the root.
 * @implements {Tree}
 */
export class CallerTree extends GrowingTree {
  /** @param {CalleeTree} tree */
  constructor(tree) {
    super(new NodeList());
    this.tree = tree;
    /** For each function, its group while entries are grouped. */
    this.groups = new Int32Array(tree.groups.length).fill(-1);
    /**
     * By node.
     * @type {EntryPlace[]}
     */
    this.places = [];
  }

  /**
   * The tree from the innermost functions, or from one.
   * @param {CalleeTree} tree
   * @param {number | null} fn
   */
  static of(tree, fn) {
    return new Work(CallerTree.steps(tree, fn)).finish();
  }

  /**
   * The same in steps.
   * @param {CalleeTree} tree
   * @param {number | null} fn
   * @returns {Generator<undefined, CallerTree>}
   */
  static *steps(tree, fn) {
    const made = new CallerTree(tree);
    const entries = fn === null ? yield* made.innermost() : made.callsOf(fn);
    const none = { nodes: new Int32Array(0), weights: new Float64Array(0) };
    const all = new EntryGroups(none, new Int32Array(0), new Int32Array(1));
    const root = made.add(-1, -1, { all, group: 0, hasCaller: false });
    made.node(root).total = fn === null ? tree.total(0) : entries.weights.reduce((a, b) => a + b, 0);
    made.node(root).children = yield* made.group(root, entries);
    return made;
  }

  /**
   * The nodes with a weight of their own, which counts for the caller if they are hidden.
   * @returns {Generator<undefined, Entries>}
   */
  *innermost() {
    const { ranges, samples } = this.tree;
    const entries = { nodes: new Int32Array(samples.length), weights: new Float64Array(samples.length) };
    let length = 0;
    for (const [first, last] of ranges) {
      for (let n = first; n <= last; n += STEP_NODES) {
        length = this.findInnermost(entries, length, n, Math.min(n + STEP_NODES, last + 1));
        yield;
      }
    }
    return { nodes: entries.nodes.subarray(0, length), weights: entries.weights.subarray(0, length) };
  }

  /**
   * Adds nodes with a weight of their own to entries. Returns how many there are then.
   * @param {Entries} entries
   * @param {number} length How many there are.
   * @param {number} first
   * @param {number} end
   */
  findInnermost({ nodes, weights }, length, first, end) {
    const { tree } = this;
    const { before } = tree.weights;
    const hasHidden = tree.shown.includes(-1);
    for (let n = first; n < end; n++) {
      const weight = before[n + 1] - before[n];
      if (weight === 0) continue;
      nodes[length] = hasHidden ? tree.shownNode(n) : n;
      weights[length++] = weight;
    }
    return length;
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
   * @param {EntryPlace} place
   */
  add(parent, fn, place) {
    this.make(this.places.length, fn, parent);
    return this.places.push(place) - 1;
  }

  /**
   * Makes a node for each function of entries; those without a node (0) are left out.
   * @param {number} parent
   * @param {Entries} entries
   * @returns {Generator<undefined, number[]>} The nodes.
   */
  *group(parent, entries) {
    const grouping = new EntryGrouping(this, entries);
    const count = entries.nodes.length;
    for (let n = 0; n < count; n += STEP_NODES) {
      grouping.find(n, Math.min(n + STEP_NODES, count));
      if (n + STEP_NODES < count) yield;
    }
    grouping.begin();
    for (let n = 0; n < count; n += STEP_NODES) {
      grouping.sum(n, Math.min(n + STEP_NODES, count));
      if (n + STEP_NODES < count) yield;
    }
    return grouping.end(parent);
  }

  /** @param {number} node */
  isLeaf(node) {
    const { children } = this.node(node);
    return children ? children.length === 0 : !this.places[node].hasCaller;
  }

  /** @param {number} node */
  children(node) {
    const it = this.node(node);
    if (!it.children) {
      const { all, group } = this.places[node];
      const { nodes, weights } = all.get(group);
      const callers = new Int32Array(nodes.length);
      for (let n = 0; n < nodes.length; n++) callers[n] = this.tree.callerOf(nodes[n]);
      it.children = new Work(this.group(node, { nodes: callers, weights })).finish();
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
    super(new NodeList());
    this.profile = profile;
    this.tree = tree;
    this.samples = samples;
    this.columns = columns;
    /** When each sample ends. */
    this.ends = new Float64Array(samples.length);
    let length = 0;
    for (let n = 0; n < samples.length; n++) {
      const before = n > 0 ? profile.time[samples[n - 1]] : -Infinity;
      length += profile.time[samples[n]] - Math.max(profile.beginOf(samples[n]), before);
      this.ends[n] = length;
    }
    this.add(-1, -1, 0).total = this.length = length;
    /**
     * The open nodes, by depth.
     * @type {number[]}
     */
    this.open = [0];
    /**
     * The nodes of the other tree's base.
     * @type {number[]}
     */
    this.path = [];
    /** The sample of the last time. */
    this.at = 0;
    /** The sample whose path it is. */
    this.previous = -1;
  }

  /**
   * Makes the tree in steps.
   * @param {Profile} profile
   * @param {CalleeTree} tree
   * @param {Int32Array} samples Of one thread, by time.
   * @param {number} columns The number of times.
   * @returns {Generator<undefined, TimeTree>}
   */
  static *steps(profile, tree, samples, columns) {
    const made = new TimeTree(profile, tree, samples, columns);
    for (let column = 0; column < columns; column++) {
      if (column % STEP_COLUMNS === 0) yield;
      made.addColumn(column);
    }
    return made;
  }

  /** @param {number} column */
  addColumn(column) {
    const { samples, ends, open, columns, length, profile } = this;
    const { base, shown } = this.tree;
    const begin = (length * column) / columns;
    const end = (length * (column + 1)) / columns;
    while (this.at + 1 < samples.length && ends[this.at] < (begin + end) / 2) this.at += 1;
    if (this.at !== this.previous) this.path = this.tree.pathTo(profile.node[samples[this.at]]);
    this.previous = this.at;
    const { path } = this;
    let depth = 0;
    const { fn, flags } = base;
    const isSame = (/** @type {number} */ n) => this.fn(open[n + 1]) === shown[fn[path[n]]];
    while (depth < path.length && depth + 1 < open.length && isSame(depth)) depth += 1;
    open.length = depth + 1;
    for (; depth < path.length; depth++) {
      const id = this.nodes.size;
      this.add(open[depth], shown[fn[path[depth]]], begin).isInlined = (flags[path[depth]] & INLINED) !== 0;
      this.node(open[depth]).children?.push(id);
      open.push(id);
    }
    for (let n = 1; n < open.length; n++) {
      const it = this.node(open[n]);
      const flag = flags[path[n - 1]];
      it.total = end - (it.start ?? 0);
      if (flag & SPLICED) it.spliced += end - begin;
      if (flag & GUESSED) it.guessed += end - begin;
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
  const keys = profile.completenessKeys();
  const isIncomplete = ends.map((end) => end.has_user_stack && !end.is_root);
  for (let n = 0; n < samples.length; n++) {
    const sample = samples[n];
    const key = keys[sample];
    counts[key] += 1;
    const end = key >> 2;
    if (!isIncomplete[end]) continue;
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
