// The page's trees, compared with plain lists of paths, on random profiles and transforms.

import assert from "node:assert/strict";
import { pathToFileURL } from "node:url";

const folder = pathToFileURL(`${process.argv[2]}/`);
const { Profile } = await import(new URL("profile.mjs", folder));
const { CalleeTree, CallerTree, completeness, ofHeaviestThread, select, withoutTemplateArguments } = await import(new URL("tree.mjs", folder));
const { instructionWeights, lineWeights, jumpArrows } = await import(new URL("code.mjs", folder));
const { tickStep } = await import(new URL("timeline.mjs", folder));
const { SameNodes, sameFunctions } = await import(new URL("difference.mjs", folder));

let seed = 1;
/** A number below a limit. */
function random(limit) {
  seed = (Math.imul(seed, 1103515245) + 12345) >>> 0;
  return (seed >>> 8) % limit;
}

const FUNCTIONS = 6;
const INSTRUCTIONS = 4;
const modules = ["a", "b", "c"];
const FIRST_LINE = 100;
const waits = ["a lock", "a disk"];
const ends = [
  { reason: "root", is_root: true, has_user_stack: true },
  { reason: "no table", is_root: false, has_user_stack: true },
  { reason: "kernel thread", is_root: false, has_user_stack: false },
  { reason: "no registers", is_root: false, has_user_stack: false },
];
const functions = Array.from({ length: FUNCTIONS }, (_, n) => ({
  name: `f${n}`,
  module: n % 3,
  kind: "user",
  line: FIRST_LINE,
}));

/** A profile, and the path of each of its nodes: functions, and as `lines` where each of them is. */
function made() {
  const root = { children: new Map() };
  const leaves = [];
  for (let sample = 0; sample < 60; sample++) {
    let node = root;
    for (let depth = random(9); depth > 0; depth--) {
      const flags = (random(4) === 0 ? random(3) : 0) + (random(4) === 0 ? 4 : 0);
      const step = (random(FUNCTIONS) * 3 + random(3)) * 8 + flags;
      if (!node.children.has(step)) node.children.set(step, { children: new Map() });
      node = node.children.get(step);
    }
    leaves.push([node, 1 + random(9)]);
  }
  const columns = { depth: [], callee: [], added: [], flags: [], line: [] };
  /** The callees of each function, and of none. */
  const callees = new Map();
  const paths = [[]];
  paths[0].lines = [];
  paths[0].code = [];
  const number = (node, path) => {
    node.number = paths.length - 1;
    for (const step of [...node.children.keys()].sort((a, b) => a - b)) {
      const fn = Math.floor(step / 24);
      const line = Math.floor(step / 8) % 3;
      columns.depth.push(path.length + 1);
      const known = callees.get(path.at(-1)) ?? [];
      columns.callee.push(known.indexOf(fn) + 1);
      if (!known.includes(fn)) columns.added.push(fn);
      callees.set(path.at(-1), known.includes(fn) ? known : [...known, fn]);
      columns.flags.push(step % 8);
      columns.line.push(line);
      const to = [...path, fn];
      to.lines = [...path.lines, line === 0 ? 0 : FIRST_LINE + line - 1];
      // The function with the code: this one, or the one that it was inlined into.
      to.code = [...path.code, step & 4 ? path.code.at(-1) : fn];
      paths.push(to);
      number(node.children.get(step), to);
    }
  };
  number(root, paths[0]);
  const first = random(leaves.length);
  const lengths = [first, 0, leaves.length - first];
  const header = { functions, modules, files: [], threads: lengths.map(() => ({})), ends, waits, is_time: true, frequency: 1000 };
  const times = lengths.flatMap((length) => Array.from({ length }, () => random(100)).sort((a, b) => a - b));
  const state = () => random(ends.length) + (random(3) === 0 ? 32 + 64 * (1 + random(waits.length)) : 0);
  const profile = new Profile(
    header,
    new Map([
      ["node.depth", columns.depth],
      ["node.callee", columns.callee],
      ["callee.function", columns.added],
      ["node.flags", columns.flags],
      ["node.line", columns.line],
      ["thread.samples", lengths],
      ["sample.node", leaves.map(([node]) => node.number)],
      ["sample.weight", leaves.map(([, weight]) => weight)],
      ["sample.time", times],
      ["sample.cpu", leaves.map(() => random(3))],
      ["sample.state", leaves.map(state)],
      ["sample.place", leaves.map(() => random(INSTRUCTIONS + 1))],
    ].map(([name, numbers]) => [name, Float64Array.from(numbers)])),
  );
  return { profile, paths };
}

function someTransforms() {
  return Array.from({ length: random(3) }, () => {
    const fn = random(FUNCTIONS);
    return [
      { kind: "hide", what: `${modules[fn % 3]}!f${fn}` },
      { kind: "module", what: modules[fn % 3] },
      { kind: "focus", what: `${modules[fn % 3]}!f${fn}` },
    ][random(3)];
  });
}

/** The path as it is shown; null if it is left out. */
function transformed(path, transforms, collapses) {
  for (const { what } of transforms.filter(({ kind }) => kind === "focus")) {
    const from = path.indexOf(Number(what.slice(3)), path.start ?? 0);
    if (from < 0) return null;
    const rest = path.slice();
    rest.start = from + 1;
    path = rest;
  }
  if (path.start) path = path.slice(path.start - 1);
  const isHidden = (fn) => transforms.some(({ kind, what }) => kind === "hide" && fn === Number(what.slice(3)));
  let names = path.filter((fn) => !isHidden(fn));
  for (const { kind, what } of transforms) {
    if (kind === "module") names = names.map((fn) => (modules[fn % 3] === what && fn < FUNCTIONS ? FUNCTIONS + (fn % 3) : fn));
  }
  names = names.filter((fn, n) => fn < FUNCTIONS || fn !== names[n - 1]);
  if (!collapses) return names;
  const once = [];
  for (const fn of names) {
    const at = once.indexOf(fn);
    if (at < 0) once.push(fn);
    else once.length = at + 1;
  }
  return once;
}

/** The weights of a function's lines and instructions, of samples that a focus does not leave out. */
function codeWeights(profile, paths, samples, transforms, fn) {
  const lines = new Map();
  const weights = { own: new Float64Array(INSTRUCTIONS), counts: new Int32Array(INSTRUCTIONS) };
  for (const sample of samples) {
    const path = paths[profile.node[sample]];
    if (transformed(path, transforms, false) === null) continue;
    const weight = profile.weight[sample];
    const at = (line) => lines.get(line) ?? lines.set(line, { own: 0, total: 0 }).get(line);
    const own = path.flatMap((it, n) => (it === fn ? [path.lines[n]] : []));
    for (const line of new Set(own)) at(line).total += weight;
    if (path.at(-1) === fn) at(path.lines.at(-1)).own += weight;
    const place = profile.place[sample];
    if (place > 0 && path.code.at(-1) === fn) {
      weights.own[place - 1] += weight;
      weights.counts[place - 1] += 1;
    }
  }
  return { lines, weights };
}

function add(map, key, weight) {
  map.set(key, (map.get(key) ?? 0) + weight);
}

/** All paths of a tree, with their weights. */
function pathsOf(tree, weight) {
  const all = new Map();
  const waiting = [[0, []]];
  while (waiting.length > 0) {
    const [node, path] = waiting.pop();
    let last = Infinity;
    for (const child of tree.children(node)) {
      const to = [...path, tree.fn(child)];
      assert.ok(tree.total(child) <= last, "the greatest comes first");
      last = tree.total(child);
      assert.equal(tree.parent(child), node);
      if (weight(child) > 0) {
        assert.ok(!all.has(to.join()), "a path is there once");
        all.set(to.join(), weight(child));
      }
      waiting.push([child, to]);
    }
  }
  return all;
}

/** Compares a tree with that of another profile: each path has the difference of its shares. */
function compare(tree, transforms, collapses, totals, said) {
  const before = made();
  const samples = Int32Array.from(before.profile.node.keys());
  const other = new CalleeTree(before.profile, samples, transforms, collapses);
  const earlier = pathsOf(other, (node) => other.total(node));
  const same = new SameNodes(tree, other, sameFunctions(tree.profile, before.profile));
  const itself = new SameNodes(tree, tree, sameFunctions(tree.profile, tree.profile));
  const waiting = [[0, []]];
  while (waiting.length > 0) {
    const [node, path] = waiting.pop();
    for (const child of tree.children(node)) {
      const to = [...path, tree.fn(child)];
      const share = (all, it) => (100 * (all.get(to.join()) ?? 0)) / (it.total(0) || 1);
      assert.ok(Math.abs(same.change(child) - (share(totals, tree) - share(earlier, other))) < 1e-9, said);
      assert.equal(itself.change(child), 0);
      waiting.push([child, to]);
    }
  }
}

/** Compares the weights that were spliced and guessed, and which nodes are inlined and leaves, with those of plain paths. */
function compareMarks(profile, samples, tree, inverse) {
  const kinds = { guessed: 1, spliced: 2, isInlined: 4 };
  const plain = [new Map(), new Map()];
  for (const sample of samples) {
    const nodes = [];
    for (let n = profile.node[sample]; n > 0; n = profile.parent[n]) nodes.unshift(n);
    for (const [which, way] of [nodes, nodes.slice().reverse()].entries()) {
      way.forEach((n, depth) => {
        const path = way.slice(0, depth + 1).map((it) => profile.fn[it]).join();
        for (const [kind, flag] of Object.entries(kinds)) {
          const isSo = (profile.flags[n] & flag) === flag;
          if (isSo) add(plain[which], `${kind} ${path}`, profile.weight[sample]);
        }
        if (depth + 1 < way.length) add(plain[which], `inner ${path}`, 1);
      });
    }
  }
  for (const [which, it] of [tree, inverse].entries()) {
    const waiting = [[0, []]];
    while (waiting.length > 0) {
      const [node, path] = waiting.pop();
      for (const child of it.children(node)) {
        const to = [...path, it.fn(child)];
        const of = (kind) => plain[which].get(`${kind} ${to.join()}`) ?? 0;
        assert.equal(it.guessed(child), of("guessed"));
        assert.equal(it.spliced(child), of("spliced"));
        assert.equal(it.isInlined(child), of("isInlined") > 0);
        assert.equal(it.isLeaf(child), of("inner") === 0);
        waiting.push([child, to]);
      }
    }
  }
}

/** Compares the samples that a random state selects, and how complete they are, with plain filters. */
function compareSelection(profile) {
  const some = (limit) => Array.from({ length: random(3) }, () => random(limit));
  const time = () => (random(2) === 0 ? null : random(100));
  const state = {
    state: ["on", "off", "all"][random(3)],
    threads: some(3),
    cpus: some(3),
    from: time(),
    to: time(),
    wait: random(3) === 0 ? waits[random(2)] : "",
  };
  const all = Array.from(profile.node.keys());
  const threads = profile.header.threads.flatMap((_, thread) => all.filter((n) => profile.thread[n] === thread).map(() => thread));
  const isOff = (n) => profile.state[n] >= 32;
  const expected = all.filter(
    (n) =>
      (state.state === "all" || isOff(n) === (state.state === "off")) &&
      (state.threads.length === 0 || state.threads.includes(threads[n])) &&
      (state.cpus.length === 0 || state.cpus.includes(profile.cpu[n])) &&
      (state.from === null || profile.time[n] >= state.from) &&
      (state.to === null || profile.time[n] < state.to) &&
      (state.wait === "" || (isOff(n) && waits[(profile.state[n] >> 6) - 1] === state.wait)),
  );
  const selected = select(profile, state);
  assert.deepEqual([...selected], expected, JSON.stringify(state));
  const sum = (samples) => samples.reduce((weight, n) => weight + profile.weight[n], 0);
  const heaviest = ofHeaviestThread(profile, selected);
  const greatest = Math.max(0, ...[0, 1, 2].map((thread) => sum(expected.filter((n) => threads[n] === thread))));
  assert.equal(sum([...heaviest.samples]), greatest);
  if (expected.length > 0) assert.deepEqual([...heaviest.samples], expected.filter((n) => threads[n] === heaviest.thread));

  const found = completeness(profile, selected);
  const flagsOf = (n) => {
    let flags = 0;
    for (let node = profile.node[n]; node > 0; node = profile.parent[node]) flags |= profile.flags[node];
    return flags;
  };
  const count = (isCounted) => expected.filter((n) => isCounted(profile.state[n] & 31, flagsOf(n))).length;
  assert.equal(found.spliced, count((end, flags) => end === 0 && (flags & 2) !== 0));
  assert.equal(found.complete, count((end, flags) => end === 0 && (flags & 2) === 0));
  assert.equal(found.guessed, count((end, flags) => end === 0 && (flags & 3) === 1));
  assert.equal(found.incomplete, count((end) => end === 1));
  assert.equal(found.kernelThreads, count((end) => end === 2));
  assert.equal(found.noUserRegisters, count((end) => end === 3));
  assert.equal(found.reasons.reduce((all, [, n]) => all + n, 0), found.incomplete);
}

const sorted = (map) => [...map].sort(([a], [b]) => (a < b ? -1 : 1));

for (let round = 0; round < 2000; round++) {
  const { profile, paths } = made();
  compareSelection(profile);
  const transforms = someTransforms();
  const collapses = random(3) === 0;
  const samples = Int32Array.from(profile.node.keys()).filter(() => random(4) > 0);
  const [own, total, callers] = [new Map(), new Map(), new Map()];
  const list = { own: new Float64Array(FUNCTIONS + 3), total: new Float64Array(FUNCTIONS + 3) };
  for (const sample of samples) {
    const path = transformed(paths[profile.node[sample]], transforms, collapses);
    const weight = profile.weight[sample];
    if (path === null || path.length === 0) continue;
    add(own, path.join(), weight);
    path.forEach((_, n) => add(total, path.slice(0, n + 1).join(), weight));
    const reversed = path.slice().reverse();
    reversed.forEach((_, n) => add(callers, reversed.slice(0, n + 1).join(), weight));
    list.own[reversed[0]] += weight;
    for (const fn of new Set(path)) list.total[fn] += weight;
  }
  const said = JSON.stringify({ round, transforms, collapses });
  const tree = new CalleeTree(profile, samples, transforms, collapses);
  assert.deepEqual(sorted(pathsOf(tree, (node) => tree.own(node))), sorted(own), said);
  assert.deepEqual(sorted(pathsOf(tree, (node) => tree.total(node))), sorted(total), said);
  assert.deepEqual(tree.weightsBy(FUNCTIONS + 3, (fn) => fn), list, said);
  const fn = random(FUNCTIONS);
  const code = codeWeights(profile, paths, samples, transforms, fn);
  const lines = lineWeights(profile, tree, fn);
  assert.deepEqual(new Map([...lines].sort()), new Map([...code.lines].sort()), said);
  assert.deepEqual(instructionWeights(profile, tree, fn, INSTRUCTIONS), code.weights, said);
  compare(tree, transforms, collapses, total, said);
  const inverse = CallerTree.of(tree, null);
  if (transforms.length === 0 && !collapses) compareMarks(profile, samples, tree, inverse);
  assert.deepEqual(sorted(pathsOf(inverse, (node) => inverse.total(node))), sorted(callers), said);
}

for (const [name, short] of [
  ["f<int, g<a>>::h<b>(c<d>&)", "f<…>::h<…>(c<…>&)"],
  ["a::operator<=>(b<c>)", "a::operator<=>(b<…>)"],
  ["operator->", "operator->"],
  ["<a as b<c>>::d", "<a as b<…>>::d"],
  ["f(int (*)()) -> g<h>", "f(int (*)()) -> g<…>"],
  // Perf maps and jitdumps have names of any length.
  ["f<int> ".repeat(1 << 17), "f<…> ".repeat(1 << 17)],
]) {
  assert.equal(withoutTemplateArguments(name), short);
}

// Arrows beside each other do not overlap, and each has all jumps to its target.
for (let round = 0; round < 500; round++) {
  const targets = Array.from({ length: 1 + random(30) }, () => 0);
  for (let jumps = random(12); jumps > 0; jumps--) targets[random(targets.length)] = 1 + random(targets.length);
  const arrows = jumpArrows(targets);
  for (const arrow of arrows) {
    const sources = targets.flatMap((target, source) => (target - 1 === arrow.target ? [source] : []));
    assert.deepEqual(arrow.sources, sources);
    const ends = [arrow.target, ...sources];
    assert.deepEqual([arrow.first, arrow.last], [Math.min(...ends), Math.max(...ends)]);
    const beside = arrows.filter((it) => it !== arrow && it.column === arrow.column);
    assert.ok(beside.every((it) => it.last < arrow.first || arrow.last < it.first));
  }
}

// Times of an axis are round, and not much farther apart than they must be.
for (const [least, step] of [
  [1, 1],
  [1.1, 2],
  [3, 5],
  [7, 10],
  [0.03, 0.05],
  [2e-6, 2e-6],
  [600, 1000],
]) {
  assert.ok(Math.abs(tickStep(least) / step - 1) < 1e-9);
}
