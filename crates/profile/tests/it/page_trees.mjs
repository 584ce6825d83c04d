// The page's trees, compared with plain lists of paths, on random profiles and transforms.

import assert from "node:assert/strict";
import { pathToFileURL } from "node:url";

const folder = pathToFileURL(`${process.argv[2]}/`);
const { Profile } = await import(new URL("profile.mjs", folder));
const { CalleeTree, CallerTree, withoutTemplateArguments } = await import(new URL("tree.mjs", folder));

let seed = 1;
/** A number below a limit. */
function random(limit) {
  seed = (Math.imul(seed, 1103515245) + 12345) >>> 0;
  return (seed >>> 8) % limit;
}

const FUNCTIONS = 6;
const modules = ["a", "b", "c"];
const functions = Array.from({ length: FUNCTIONS }, (_, n) => ({ name: `f${n}`, module: n % 3, kind: "user" }));

/** A profile, and the path of each of its nodes. */
function made() {
  const root = { children: new Map() };
  const leaves = [];
  for (let sample = 0; sample < 60; sample++) {
    let node = root;
    for (let depth = random(9); depth > 0; depth--) {
      const step = random(FUNCTIONS) * 8 + (random(4) === 0 ? random(3) : 0);
      if (!node.children.has(step)) node.children.set(step, { children: new Map() });
      node = node.children.get(step);
    }
    leaves.push([node, 1 + random(9)]);
  }
  const columns = { depth: [], function: [], flags: [] };
  const paths = [[]];
  const number = (node, path) => {
    node.number = paths.length - 1;
    for (const step of [...node.children.keys()].sort((a, b) => a - b)) {
      const fn = Math.floor(step / 8);
      columns.depth.push(path.length + 1);
      columns.function.push(fn);
      columns.flags.push(step % 8);
      paths.push([...path, fn]);
      number(node.children.get(step), [...path, fn]);
    }
  };
  number(root, []);
  const header = { functions, modules, files: [], threads: [{}], ends: [], is_time: true, frequency: 1000 };
  const zeros = leaves.map(() => 0);
  const profile = new Profile(
    header,
    new Map([
      ["node.depth", columns.depth],
      ["node.function", columns.function],
      ["node.flags", columns.flags],
      ["thread.samples", [leaves.length]],
      ["sample.node", leaves.map(([node]) => node.number)],
      ["sample.weight", leaves.map(([, weight]) => weight)],
      ["sample.time", zeros],
      ["sample.cpu", zeros],
      ["sample.state", zeros],
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

const sorted = (map) => [...map].sort(([a], [b]) => (a < b ? -1 : 1));

for (let round = 0; round < 2000; round++) {
  const { profile, paths } = made();
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
  const inverse = new CallerTree(tree, null);
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
