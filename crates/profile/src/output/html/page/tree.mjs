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
  const from = state.from ?? -Infinity;
  const to = state.to ?? Infinity;
  const selected = new Int32Array(profile.sampleCount);
  const [ofAnyState, isOffWanted] = [state.state === "all", state.state === "off"];
  const [ofAnyThread, onAnyCpu] = [threads.size === 0, cpus.size === 0];
  let count = 0;
  for (let n = 0; n < profile.sampleCount; n++) {
    if (!ofAnyState && profile.isOff(n) !== isOffWanted) continue;
    if (!ofAnyThread && !threads.has(profile.thread[n])) continue;
    if (!onAnyCpu && !cpus.has(profile.cpu[n])) continue;
    if (state.wait !== "" && profile.waitOf(n) !== state.wait) continue;
    if (profile.time[n] < from || profile.time[n] >= to) continue;
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

/** Numbers of pairs of numbers. */
class PairMap {
  constructor() {
    this.size = 0;
    this.first = new Int32Array(4096);
    this.second = new Int32Array(4096);
    this.value = new Int32Array(4096).fill(-1);
  }

  /**
   * The number of a pair: the given one if it has none yet.
   * @param {number} a
   * @param {number} b
   * @param {number} next
   */
  get(a, b, next) {
    if (2 * this.size >= this.value.length) this.grow();
    const at = this.find(a, b);
    if (this.value[at] < 0) {
      this.first[at] = a;
      this.second[at] = b;
      this.value[at] = next;
      this.size += 1;
    }
    return this.value[at];
  }

  /**
   * @param {number} a
   * @param {number} b
   */
  find(a, b) {
    const mask = this.value.length - 1;
    let at = (Math.imul(a, 0x9e3779b1) ^ Math.imul(b, 0x85ebca6b)) >>> 0;
    at = (at ^ (at >>> 15)) & mask;
    while (this.value[at] >= 0 && (this.first[at] !== a || this.second[at] !== b)) {
      at = (at + 1) & mask;
    }
    return at;
  }

  grow() {
    const { first, second, value } = this;
    this.first = new Int32Array(2 * value.length);
    this.second = new Int32Array(2 * value.length);
    this.value = new Int32Array(2 * value.length).fill(-1);
    for (let n = 0; n < value.length; n++) {
      if (value[n] < 0) continue;
      const at = this.find(first[n], second[n]);
      this.first[at] = first[n];
      this.second[at] = second[n];
      this.value[at] = value[n];
    }
  }
}

/**
 * The nodes of a profile after the transforms, for all samples. A node is known by its caller's
 * and its function. Children of a profile's node differ, except that neighbours can have the same
 * function with other marks. So only below a node that stands for several are children looked up.
 */
class TreeShape {
  /**
   * @param {Profile} profile
   * @param {Transform[]} transforms
   * @param {boolean} collapsesRecursion
   */
  constructor(profile, transforms, collapsesRecursion) {
    const size = profile.nodeCount + 1;
    this.profile = profile;
    this.collapsesRecursion = collapsesRecursion;
    this.count = 1;
    this.functions = new Int32Array(size);
    this.parents = new Int32Array(size);
    this.firstChild = new Int32Array(size);
    this.nextSibling = new Int32Array(size);
    /** Whether a node stands for several of the profile. */
    this.isJoined = new Uint8Array(size);
    const shownCount = profile.header.functions.length + profile.header.modules.length;
    // What `onWay` needs: the depths of nodes, the way to the last one by depth, and on it the node of each function.
    this.depths = new Int32Array(collapsesRecursion ? size : 0);
    this.way = new Int32Array(collapsesRecursion ? shownCount + 1 : 0);
    this.wayLength = 0;
    this.nodeOnWay = new Int32Array(shownCount);
    this.pairs = new PairMap();
    this.functions[0] = this.parents[0] = -1;
    /** The node of each node of the profile; -1 if it is not below a focused function. */
    this.map = new Int32Array(size);
    const shown = shownFunctions(profile, transforms);
    const focus = transforms.filter((it) => it.kind === "focus").map((it) => profile.functionByKey.get(it.what) ?? -1);
    /** How many focused functions, in their order, are in the path to a node. */
    const focused = focus.length > 0 ? new Uint8Array(size) : null;
    if (focused) {
      this.map[0] = -1;
      this.isJoined[0] = 1;
    }
    if (transforms.length === 0 && !collapsesRecursion) this.addAll();
    else this.addShown(shown, focus, focused);
    this.pairs = new PairMap();
    this.depths = this.way = new Int32Array(0);
    /** The greatest depth, up to what a column of 16 bits holds. */
    this.maxDepth = 0;
    const depths = new Uint16Array(this.count);
    for (let n = 1; n < this.count; n++) {
      const depth = Math.min(depths[this.parents[n]] + 1, 0xffff);
      depths[n] = depth;
      if (depth > this.maxDepth) this.maxDepth = depth;
    }
  }

  /** Adds all nodes as they are: the usual case, of which the loop is kept small. */
  addAll() {
    const { map, functions, parents, firstChild, nextSibling, isJoined } = this;
    const { fn, parent } = this.profile;
    for (let n = 1; n < fn.length; n++) {
      const to = map[parent[n]];
      const last = firstChild[to];
      if (isJoined[to] || (last > 0 && functions[last] === fn[n])) {
        map[n] = this.below(to, fn[n]);
        continue;
      }
      const node = this.count++;
      functions[node] = fn[n];
      parents[node] = to;
      nextSibling[node] = last;
      firstChild[to] = node;
      map[n] = node;
    }
  }

  /**
   * Adds what transforms show of the nodes.
   * @param {Int32Array} shown
   * @param {number[]} focus
   * @param {Uint8Array | null} focused
   */
  addShown(shown, focus, focused) {
    const { profile } = this;
    const size = profile.nodeCount + 1;
    for (let n = 1; n < size; n++) {
      const fn = profile.fn[n];
      const caller = profile.parent[n];
      let parent = this.map[caller];
      if (focused) {
        const above = focused[caller];
        focused[n] = above + (above < focus.length && fn === focus[above] ? 1 : 0);
        if (focused[n] < focus.length) {
          this.map[n] = -1;
          continue;
        }
        if (parent < 0) parent = 0;
      }
      this.map[n] = this.below(parent, shown[fn]);
    }
  }

  /**
   * The node of a function below a node.
   * @param {number} parent
   * @param {number} fn
   */
  below(parent, fn) {
    if (fn < 0 || (this.functions[parent] === fn && this.profile.isModule(fn))) return this.join(parent);
    if (this.collapsesRecursion) {
      const outer = this.onWay(parent, fn);
      if (outer > 0) return this.join(outer);
    }
    // Functions that are shown as one module need not be neighbours.
    if (this.profile.isModule(fn)) this.join(parent);
    if (this.isJoined[parent]) {
      const node = this.pairs.get(parent, fn, this.count);
      return node < this.count ? this.join(node) : this.add(parent, fn);
    }
    const last = this.firstChild[parent];
    return last > 0 && this.functions[last] === fn ? this.join(last) : this.add(parent, fn);
  }

  /**
   * The node of a function on the way to a node, if each function is there once; 0 for none. Nodes that follow each
   * other have most of the way in common, so it is kept.
   * @param {number} node
   * @param {number} fn
   */
  onWay(node, fn) {
    const { way, nodeOnWay, depths, parents, functions } = this;
    for (let at = node; at > 0 && (depths[at] > this.wayLength || way[depths[at]] !== at); at = parents[at]) {
      way[depths[at]] = at;
      nodeOnWay[functions[at]] = at;
    }
    this.wayLength = depths[node];
    const found = nodeOnWay[fn];
    return found > 0 && depths[found] <= this.wayLength && way[depths[found]] === found ? found : 0;
  }

  /**
   * @param {number} parent
   * @param {number} fn
   */
  add(parent, fn) {
    const node = this.count++;
    if (this.collapsesRecursion) this.depths[node] = this.depths[parent] + 1;
    this.functions[node] = fn;
    this.parents[node] = parent;
    this.nextSibling[node] = this.firstChild[parent];
    this.firstChild[parent] = node;
    return node;
  }

  /**
   * Has a node stand for one more: its children are looked up from now on.
   * @param {number} node
   */
  join(node) {
    if (!this.isJoined[node]) {
      this.isJoined[node] = 1;
      for (let child = this.firstChild[node]; child > 0; child = this.nextSibling[child]) {
        this.pairs.get(node, this.functions[child], child);
      }
    }
    return node;
  }
}

/**
 * The shape that was made last of each profile.
 * @type {WeakMap<Profile, {key: string, shape: TreeShape}>}
 */
const lastShapes = new WeakMap();

/**
 * The shape of a profile after transforms. The selection of samples does not change it.
 * @param {Profile} profile
 * @param {Transform[]} transforms
 * @param {boolean} collapsesRecursion
 */
function shapeOf(profile, transforms, collapsesRecursion) {
  const key = JSON.stringify([transforms, collapsesRecursion]);
  let last = lastShapes.get(profile);
  if (last?.key !== key) {
    last = { key, shape: new TreeShape(profile, transforms, collapsesRecursion) };
    lastShapes.set(profile, last);
  }
  return last.shape;
}

/**
 * The tree of callees, after the transforms, with the weights of samples.
 * @implements {Tree}
 */
export class CalleeTree {
  /**
   * @param {Profile} profile
   * @param {Int32Array} samples
   * @param {Transform[]} transforms
   * @param {boolean} collapsesRecursion
   */
  constructor(profile, samples, transforms, collapsesRecursion) {
    const shape = shapeOf(profile, transforms, collapsesRecursion);
    this.shape = shape;
    this.map = shape.map;
    this.count = shape.count;
    this.functions = shape.functions;
    this.parents = shape.parents;
    this.maxDepth = shape.maxDepth;
    this.ownWeights = new Float64Array(this.count);
    for (const sample of samples) {
      const node = this.map[profile.node[sample]];
      if (node >= 0) this.ownWeights[node] += profile.weight[sample];
    }
    this.totals = this.ownWeights.slice();
    for (let n = this.count - 1; n > 0; n--) this.totals[this.parents[n]] += this.totals[n];
    this.marks = profile.marked.length > 0 ? this.markWeights(profile, samples) : null;
    /** @type {Map<number, Int32Array>} */
    this.sorted = new Map();
  }

  /**
   * The weights of frames with marks, for each node.
   * @param {Profile} profile
   * @param {Int32Array} samples
   */
  markWeights(profile, samples) {
    const spliced = new Float64Array(this.count);
    const guessed = new Float64Array(this.count);
    const inlined = new Uint8Array(this.count);
    const totals = new Float64Array(profile.nodeCount + 1);
    for (const sample of samples) totals[profile.node[sample]] += profile.weight[sample];
    for (let n = profile.nodeCount; n > 0; n--) totals[profile.parent[n]] += totals[n];
    for (const n of profile.marked) {
      const node = this.map[n];
      // A frame that counts for its caller has the caller's marks.
      if (node < 0 || this.map[profile.parent[n]] === node) continue;
      if (profile.flags[n] & SPLICED) spliced[node] += totals[n];
      if (profile.flags[n] & GUESSED) guessed[node] += totals[n];
      if (profile.flags[n] & INLINED) inlined[node] = 1;
    }
    return { spliced, guessed, inlined };
  }

  /** @param {number} node */
  children(node) {
    let sorted = this.sorted.get(node);
    if (!sorted) {
      const children = [];
      const { firstChild, nextSibling } = this.shape;
      for (let child = firstChild[node]; child > 0; child = nextSibling[child]) {
        if (this.totals[child] > 0) children.push(child);
      }
      sorted = Int32Array.from(children.sort((a, b) => this.totals[b] - this.totals[a] || a - b));
      this.sorted.set(node, sorted);
    }
    return sorted;
  }

  /** @param {number} node */
  isLeaf(node) {
    const { firstChild, nextSibling } = this.shape;
    let child = firstChild[node];
    while (child > 0 && this.totals[child] === 0) child = nextSibling[child];
    return child <= 0;
  }

  /** @param {number} node */
  fn(node) {
    return this.functions[node];
  }

  /** @param {number} node */
  parent(node) {
    return this.parents[node];
  }

  /** @param {number} node */
  total(node) {
    return this.totals[node];
  }

  /** @param {number} node */
  own(node) {
    return this.ownWeights[node];
  }

  /** @param {number} node */
  spliced(node) {
    return this.marks ? this.marks.spliced[node] : 0;
  }

  /** @param {number} node */
  guessed(node) {
    return this.marks ? this.marks.guessed[node] : 0;
  }

  /** @param {number} node */
  isInlined(node) {
    return this.marks !== null && this.marks.inlined[node] === 1;
  }

  /** @param {number} node */
  has(node) {
    return node >= 0 && node < this.count;
  }

  start() {
    return null;
  }

  /**
   * Calls functions at each node before and after its callees.
   * @param {(node: number) => void} enter
   * @param {(node: number) => void} leave
   */
  walk(enter, leave) {
    const { firstChild, nextSibling } = this.shape;
    let node = 0;
    let next = firstChild[0];
    for (;;) {
      while (next > 0 && this.totals[next] === 0) next = nextSibling[next];
      if (next > 0) {
        enter(next);
        node = next;
        next = firstChild[node];
      } else if (node > 0) {
        leave(node);
        next = nextSibling[node];
        node = this.parents[node];
      } else return;
    }
  }

  /**
   * Own and total weights by a property of functions. A path counts once for each value.
   * @param {number} count The number of values.
   * @param {(fn: number) => number} of
   */
  weightsBy(count, of) {
    const own = new Float64Array(count);
    const total = new Float64Array(count);
    const active = new Int32Array(count);
    const { functions, ownWeights, parents, totals } = this;
    const { header } = this.shape.profile;
    const values = Int32Array.from({ length: header.functions.length + header.modules.length }, (_, fn) => of(fn));
    const { firstChild, nextSibling } = this.shape;
    // As `walk`, which would call two functions for each node.
    let node = 0;
    let next = firstChild[0];
    for (;;) {
      if (next > 0) {
        if (totals[next] === 0) {
          next = nextSibling[next];
          continue;
        }
        node = next;
        next = firstChild[node];
        const value = values[functions[node]];
        own[value] += ownWeights[node];
        if (active[value]++ === 0) total[value] += totals[node];
      } else if (node > 0) {
        active[values[functions[node]]] -= 1;
        next = nextSibling[node];
        node = parents[node];
      } else break;
    }
    return { own, total };
  }

  /**
   * The outermost nodes of functions.
   * @param {(fn: number) => boolean} isWanted
   */
  outermost(isWanted) {
    /** @type {number[]} */
    const found = [];
    let inside = 0;
    this.walk(
      (node) => {
        if (isWanted(this.functions[node]) && inside++ === 0) found.push(node);
      },
      (node) => {
        if (isWanted(this.functions[node])) inside -= 1;
      },
    );
    return found;
  }
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
    /** @type {GrowingNode[]} */
    this.nodes = [];
  }

  /** @param {number} node */
  fn(node) {
    return this.nodes[node].fn;
  }

  /** @param {number} node */
  parent(node) {
    return this.nodes[node].parent;
  }

  /** @param {number} node */
  total(node) {
    return this.nodes[node].total;
  }

  /** @param {number} node */
  own(node) {
    return this.nodes[node].own;
  }

  /** @param {number} node */
  spliced(node) {
    return this.nodes[node].spliced;
  }

  /** @param {number} node */
  guessed(node) {
    return this.nodes[node].guessed;
  }

  /** @param {number} node */
  isInlined(node) {
    return this.nodes[node].isInlined;
  }

  /** @param {number} node */
  start(node) {
    return this.nodes[node].start;
  }

  /** @param {number} node */
  has(node) {
    return node >= 0 && node < this.nodes.length;
  }
}

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
    const { header } = tree.shape.profile;
    /** For each function, its group at the moment. */
    this.groups = new Int32Array(header.functions.length + header.modules.length).fill(-1);
    /**
     * For each node, the nodes of the other tree, and their weights.
     * @type {{nodes: Int32Array, weights: Float64Array}[]}
     */
    this.entries = [];
    const starts = fn === null ? this.innermost() : Int32Array.from(tree.outermost((other) => other === fn));
    const weights = fn === null ? tree.ownWeights : tree.totals;
    this.add(-1, -1, { nodes: new Int32Array(0), weights: new Float64Array(0) });
    const entries = { nodes: starts, weights: Float64Array.from(starts, (node) => weights[node]) };
    this.nodes[0].total = fn === null ? tree.total(0) : entries.weights.reduce((a, b) => a + b, 0);
    this.nodes[0].children = this.group(0, entries);
  }

  /** The nodes with a weight of their own. */
  innermost() {
    const { count, ownWeights } = this.tree;
    const nodes = new Int32Array(count);
    let length = 0;
    for (let n = 1; n < count; n++) {
      if (ownWeights[n] > 0) nodes[length++] = n;
    }
    return nodes.slice(0, length);
  }

  /**
   * @param {number} parent
   * @param {number} fn
   * @param {{nodes: Int32Array, weights: Float64Array}} entries
   */
  add(parent, fn, entries) {
    const { tree } = this;
    const it = { fn, parent, total: 0, own: 0, spliced: 0, guessed: 0, isInlined: false, start: null, children: null };
    const { nodes, weights } = entries;
    for (let n = 0; n < nodes.length; n++) it.total += weights[n];
    for (let n = 0; tree.marks && n < nodes.length; n++) {
      const share = weights[n] / (tree.totals[nodes[n]] || 1);
      it.spliced += share * tree.marks.spliced[nodes[n]];
      it.guessed += share * tree.marks.guessed[nodes[n]];
      it.isInlined ||= tree.marks.inlined[nodes[n]] === 1;
    }
    this.entries.push(entries);
    return this.nodes.push(it) - 1;
  }

  /**
   * Makes a node for each function of entries.
   * @param {number} parent
   * @param {{nodes: Int32Array, weights: Float64Array}} entries
   */
  group(parent, entries) {
    const { groups, tree } = this;
    /** @type {number[]} */
    const functions = [];
    /** @type {number[]} */
    const counts = [];
    for (const node of entries.nodes) {
      const fn = tree.functions[node];
      if (groups[fn] < 0) {
        groups[fn] = functions.push(fn) - 1;
        counts.push(0);
      }
      counts[groups[fn]] += 1;
    }
    const parts = counts.map((count) => ({ nodes: new Int32Array(count), weights: new Float64Array(count), length: 0 }));
    for (let n = 0; n < entries.nodes.length; n++) {
      const node = entries.nodes[n];
      const part = parts[groups[tree.functions[node]]];
      part.nodes[part.length] = node;
      part.weights[part.length++] = entries.weights[n];
    }
    for (const fn of functions) groups[fn] = -1;
    const children = parts.map((part, n) => this.add(parent, functions[n], part));
    return children.sort((a, b) => this.nodes[b].total - this.nodes[a].total);
  }

  /** @param {number} node */
  isLeaf(node) {
    const { children } = this.nodes[node];
    return children ? children.length === 0 : this.entries[node].nodes.every((inner) => this.tree.parents[inner] <= 0);
  }

  /** @param {number} node */
  children(node) {
    const it = this.nodes[node];
    if (!it.children) {
      const { nodes, weights } = this.entries[node];
      const callers = { nodes: new Int32Array(nodes.length), weights: new Float64Array(nodes.length) };
      let count = 0;
      for (let n = 0; n < nodes.length; n++) {
        const caller = this.tree.parents[nodes[n]];
        if (caller <= 0) continue;
        callers.nodes[count] = caller;
        callers.weights[count++] = weights[n];
      }
      it.children = this.group(node, {
        nodes: callers.nodes.subarray(0, count),
        weights: callers.weights.subarray(0, count),
      });
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
    /**
     * For each node, the node of the other tree.
     * @type {number[]}
     */
    this.origin = [0];
    /** When each sample ends. */
    const ends = new Float64Array(samples.length);
    let length = 0;
    samples.forEach((sample, n) => {
      const before = n > 0 ? profile.time[samples[n - 1]] : -Infinity;
      length += profile.time[sample] - Math.max(profile.beginOf(sample), before);
      ends[n] = length;
    });
    this.add(-1, -1, 0, length);
    /**
     * The open nodes, by depth.
     * @type {number[]}
     */
    let open = [0];
    /** @type {number[]} */
    let path = [];
    let at = 0;
    let previous = -1;
    for (let column = 0; column < columns; column++) {
      const begin = (length * column) / columns;
      const end = (length * (column + 1)) / columns;
      while (at + 1 < samples.length && ends[at] < (begin + end) / 2) at += 1;
      if (at !== previous) path = pathOf(tree, Math.max(tree.map[profile.node[samples[at]]], 0));
      previous = at;
      let depth = 0;
      while (depth < path.length && depth + 1 < open.length && this.origin[open[depth + 1]] === path[depth]) depth += 1;
      open = open.slice(0, depth + 1);
      for (; depth < path.length; depth++) {
        const node = this.add(open[depth], tree.functions[path[depth]], begin, 0);
        this.origin[node] = path[depth];
        this.nodes[node].isInlined = tree.isInlined(path[depth]);
        this.nodes[open[depth]].children?.push(node);
        open.push(node);
      }
      for (const node of open.slice(1)) {
        const it = this.nodes[node];
        const other = this.origin[node];
        it.total = end - (it.start ?? 0);
        it.spliced = (it.total * tree.spliced(other)) / (tree.totals[other] || 1);
        it.guessed = (it.total * tree.guessed(other)) / (tree.totals[other] || 1);
      }
    }
  }

  /**
   * @param {number} parent
   * @param {number} fn
   * @param {number} start
   * @param {number} total
   */
  add(parent, fn, start, total) {
    return this.nodes.push({ fn, parent, total, own: 0, spliced: 0, guessed: 0, isInlined: false, start, children: [] }) - 1;
  }

  /** @param {number} node */
  isLeaf(node) {
    return this.children(node).length === 0;
  }

  /** @param {number} node */
  children(node) {
    return this.nodes[node].children ?? [];
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
  const marks = profile.pathFlags;
  const result = { complete: 0, guessed: 0, spliced: 0, incomplete: 0, kernelThreads: 0, noUserRegisters: 0 };
  /** @type {Map<string, number>} */
  const reasons = new Map();
  const ends = profile.header.ends;
  for (const sample of samples) {
    const end = profile.endOf(sample);
    const mark = marks[profile.node[sample]];
    if (!end.has_user_stack) {
      if (end === ends.find((it) => !it.has_user_stack)) result.kernelThreads += 1;
      else result.noUserRegisters += 1;
    } else if (end.is_root && mark & SPLICED) result.spliced += 1;
    else if (end.is_root) {
      result.complete += 1;
      if (mark & GUESSED) result.guessed += 1;
    } else {
      result.incomplete += 1;
      const module = outermostModule(profile, profile.node[sample]);
      const reason = module ? `${end.reason} in ${module}` : end.reason;
      reasons.set(reason, (reasons.get(reason) ?? 0) + 1);
    }
  }
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
  while (profile.parent[node] > 0) node = profile.parent[node];
  return profile.moduleName(profile.fn[node]);
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
