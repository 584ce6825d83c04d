// The page: the address says what is shown, and each change is a new address.

import { Profile, decode, measured } from "./profile.mjs";
import { formatState, parseState } from "./state.mjs";
import {
  CalleeTree,
  CallerTree,
  NodeWeights,
  TimeTree,
  Work,
  completeness,
  matcher,
  ofHeaviestThread,
  select,
  shareOf,
  waitWeights,
  withoutTemplateArguments,
} from "./tree.mjs";
import { Graph, colour, hatch } from "./flame.mjs";
import { Timeline, waitColour } from "./timeline.mjs";
import { SameNodes, changeColour, changeText, sameFunctions } from "./difference.mjs";
import { button, element, showChanges, showList, showTree } from "./tables.mjs";
import { decodeCode, instructionWeights, lineWeights, showInstructions, showSource } from "./code.mjs";

/** @typedef {import("./state.mjs").State} State */
/** @typedef {import("./tree.mjs").Tree} Tree */
/** @typedef {{own: Float64Array, total: Float64Array}} Sums */

/** Stacks that are deeper are shown with recursion collapsed, unless the address says otherwise. */
const MAX_DEPTH = 500;
/** What must be left of an idle time for one more step, in milliseconds. */
const IDLE_STEP_MS = 8;
/** The number of times of the graph by time: fixed, so that its nodes have the same numbers. */
const TIME_COLUMNS = 2000;

/**
 * @template {HTMLElement} T
 * @param {string} id
 * @param {new () => T} type
 */
function byId(id, type) {
  const found = document.getElementById(id);
  if (!(found instanceof type)) throw new Error(`the page has no ${id}`);
  return found;
}

class Page {
  /**
   * @param {Profile} profile
   * @param {Profile | null} before The profile that it is compared with.
   */
  constructor(profile, before) {
    this.profile = profile;
    this.before = before;
    /** For each function, the same one in the profile before. */
    this.functionsBefore = before ? sameFunctions(profile, before) : new Int32Array(0);
    this.state = this.read();
    this.view = byId("view", HTMLDivElement);
    this.timeline = new Timeline(byId("timeline", HTMLDivElement), profile, (change) => this.change(change));
    /** What is computed of samples and transforms, and what it was computed for. */
    this.computed = {
      key: "",
      selection: "",
      samples: new Int32Array(0),
      tree: /** @type {CalleeTree | null} */ (null),
      callers: /** @type {Work<CallerTree> | null} */ (null),
      byTime: /** @type {{thread: number, tree: Work<TimeTree>} | null} */ (null),
      lists: /** @type {{function: Work<Sums>, module: Work<Sums>} | null} */ (null),
      before: /** @type {CalleeTree | null} */ (null),
      collapses: false,
    };
    /** @type {Graph | null} */
    this.graph = null;
    /** What the shares of two profiles are of. */
    this.weights = element("span");
    /** @type {Map<number, string>} */
    this.shortNames = new Map();
    /**
     * The samples whose completeness is shown.
     * @type {Int32Array | null}
     */
    this.shownCompleteness = null;
    /** @type {{key: string, on: number, off: Float64Array} | null} */
    this.shownActivity = null;
    /** @type {{on: number, off: Float64Array} | null} */
    this.earlierActivity = null;
    /**
     * The code, as soon as a view has needed it.
     * @type {import("./code.mjs").Code | null}
     */
    this.code = null;
    this.fill();
    this.listen();
    addEventListener("hashchange", () => {
      this.state = this.read();
      this.render();
    });
    this.render();
  }

  /** The state in the address, with samples that there are. */
  read() {
    const state = parseState(location.hash);
    const states = this.states();
    if (!states.includes(state.state)) state.state = states[0] ?? "on";
    return state;
  }

  /** Which samples there are. Events and nanoseconds cannot be added. */
  states() {
    const { hasOn, hasOff, header } = this.profile;
    /** @type {State["state"][]} */
    const states = [];
    if (hasOn) states.push("on");
    if (hasOff) states.push("off");
    if (hasOn && hasOff && header.is_time) states.push("all");
    return states;
  }

  /** @param {Partial<State>} change */
  change(change) {
    const before = location.hash;
    location.hash = formatState({ ...this.state, ...change });
    if (location.hash === before) this.render();
  }

  /** What does not change. */
  fill() {
    const { header } = this.profile;
    document.title = `${header.title} – unspool`;
    byId("title", HTMLElement).textContent = header.title;
    const date = header.started > 0 ? new Date(header.started).toISOString().slice(0, 19).replace("T", " ") + " UTC" : "";
    const seconds = `${((this.profile.end - this.profile.start) / 1e6).toFixed(2)} s`;
    const facts = [
      `${this.profile.sampleCount.toLocaleString("en")} samples in ${seconds}`,
      header.frequency ? `${header.event} at ${header.frequency} Hz` : header.event,
      header.host,
      `Linux ${header.kernel} ${header.arch}`,
      header.tool,
      date,
    ];
    byId("facts", HTMLElement).textContent = facts.filter((fact) => fact !== "").join(" · ");
    if (this.before) this.fillComparison(this.before);
    const states = byId("state", HTMLSelectElement);
    const words = { on: "on a CPU", off: "off a CPU", all: "both" };
    states.append(...this.states().map((state) => new Option(words[state], state)));
    const legend = byId("legend", HTMLElement);
    /** @type {[string, string, boolean][]} */
    const kinds = [
      ["user", "program: a colour for each module", false],
      ["user", "inlined", true],
      ["kernel", "kernel", false],
      ["jit", "generated at run time", false],
      ["module", "collapsed module", false],
    ];
    for (const [kind, text, isInlined] of this.before ? [] : kinds) {
      legend.append(this.legendEntry(text, colour(kind, 0, isInlined), null));
    }
    legend.append(this.legendEntry("spliced: from another copy of the stack", "#e4e4ea", "lines"));
    legend.append(this.legendEntry("guessed: without an unwind table", "#e4e4ea", "dots"));
  }

  /** @param {Profile} before */
  fillComparison(before) {
    const { title, started } = before.header;
    const date = started > 0 ? `, ${new Date(started).toISOString().slice(0, 19).replace("T", " ")} UTC` : "";
    const samples = `${before.sampleCount.toLocaleString("en")} samples`;
    const scope = "Threads and times are selected in the profile after. ";
    const text = `Compared with ${title} before: ${samples}${date}. ${scope}`;
    const line = element("p", text, "comparison");
    line.append(this.weights);
    byId("facts", HTMLElement).after(line);
    const legend = byId("legend", HTMLElement);
    legend.append(this.legendEntry("▲ a greater share than before", changeColour(10), null));
    legend.append(this.legendEntry("▼ a smaller one", changeColour(-10), null));
  }

  /**
   * @param {string} text
   * @param {string} fill
   * @param {"lines" | "dots" | null} pattern
   */
  legendEntry(text, fill, pattern) {
    const entry = element("span");
    const canvas = element("canvas");
    canvas.width = 28;
    canvas.height = 18;
    const context = canvas.getContext("2d");
    if (context) {
      context.fillStyle = fill;
      context.fillRect(0, 0, 28, 18);
      if (pattern) {
        context.fillStyle = context.createPattern(hatch()[pattern], "repeat") ?? "";
        context.fillRect(0, 0, 28, 18);
      }
    }
    canvas.setAttribute("aria-hidden", "true");
    entry.append(canvas, text);
    return entry;
  }

  listen() {
    const onChange = (/** @type {string} */ id, /** @type {(input: HTMLInputElement) => Partial<State>} */ change) => {
      const input = byId(id, HTMLInputElement);
      input.addEventListener("change", () => this.change(change(input)));
    };
    const micros = (/** @type {HTMLInputElement} */ input) => (input.value === "" ? null : Number(input.value) * 1e6);
    onChange("from", (input) => ({ from: micros(input), zoom: 0 }));
    onChange("to", (input) => ({ to: micros(input), zoom: 0 }));
    onChange("callers", (input) => ({ callers: input.checked, zoom: 0 }));
    onChange("up", (input) => ({ up: input.checked }));
    onChange("full", (input) => ({ full: input.checked }));
    onChange("recursion", (input) => ({ recursion: input.checked, zoom: 0 }));
    onChange("search", (input) => ({ search: input.value }));
    byId("all-time", HTMLButtonElement).addEventListener("click", () => this.change({ from: null, to: null, zoom: 0 }));
    const states = byId("state", HTMLSelectElement);
    states.addEventListener("change", () => this.change({ state: /** @type {State["state"]} */ (states.value), zoom: 0 }));
    const lanes = byId("lanes", HTMLSelectElement);
    lanes.addEventListener("change", () => this.change({ lanes: /** @type {State["lanes"]} */ (lanes.value) }));
    for (const view of this.viewButtons()) view.addEventListener("click", () => this.show(view.dataset.view));
    const help = byId("help", HTMLDialogElement);
    byId("help-button", HTMLButtonElement).addEventListener("click", () => help.showModal());
    document.addEventListener("keydown", (event) => this.key(event));
  }

  viewButtons() {
    return Array.from(byId("views", HTMLElement).querySelectorAll("button"));
  }

  /** @param {string | undefined} view */
  show(view) {
    this.change({ view: /** @type {State["view"]} */ (view), zoom: 0, line: 0 });
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const target = /** @type {HTMLElement} */ (event.target);
    const isTyping = target instanceof HTMLInputElement && target.type !== "checkbox";
    if (isTyping || target instanceof HTMLSelectElement || event.ctrlKey || event.metaKey || event.altKey) return;
    if (document.querySelector("dialog[open]")) return;
    const { fn, module } = this.selected();
    const view = this.viewButtons()[Number(event.key) - 1];
    if (view) this.show(view.dataset.view);
    else if (event.key === "/") byId("search", HTMLInputElement).focus();
    else if (event.key === "?") byId("help", HTMLDialogElement).showModal();
    else if (event.key === "r") this.change({ recursion: !this.computed.collapses, zoom: 0 });
    else if (event.key === "Backspace") history.back();
    else if (event.key === "f" && fn) this.transform("focus", fn);
    else if (event.key === "h" && fn) this.transform("hide", fn);
    else if (event.key === "m" && module) this.transform("module", module);
    else if (event.key === "c" && fn) this.show("around");
    else return;
    event.preventDefault();
  }

  /** The selected function and its module, by their names in addresses. */
  selected() {
    const id = this.profile.functionByKey.get(this.state.fn);
    return { id, fn: id === undefined ? "" : this.state.fn, module: id === undefined ? "" : this.profile.moduleName(id) };
  }

  /**
   * @param {"focus" | "hide" | "module"} kind
   * @param {string} what
   */
  transform(kind, what) {
    this.change({ transforms: [...this.state.transforms, { kind, what }], zoom: 0 });
  }

  /** The samples and the tree of callees of the state. */
  compute() {
    const { state, profile } = this;
    const { threads, cpus, from, to, transforms, recursion } = state;
    const selection = JSON.stringify([state.state, threads, cpus, from, to, state.wait]);
    const key = JSON.stringify([selection, transforms, recursion]);
    if (this.computed.key !== key || !this.computed.tree) {
      const isSame = this.computed.tree && this.computed.selection === selection;
      const samples = isSame ? this.computed.samples : select(profile, state);
      const collapses = recursion ?? profile.maxDepth > MAX_DEPTH;
      const tree = new CalleeTree(profile, samples, transforms, collapses);
      const before = this.treeBefore(collapses);
      this.computed = { key, selection, samples, tree, callers: null, byTime: null, lists: null, before, collapses };
    }
    return { ...this.computed, tree: /** @type {CalleeTree} */ (this.computed.tree) };
  }

  /**
   * The tree of the profile before: of all its threads and times, which are not those of this one.
   * @param {boolean} collapses
   */
  treeBefore(collapses) {
    const { before, state } = this;
    if (!before) return null;
    const samples = select(before, { ...parseState(""), state: state.state });
    return new CalleeTree(before, samples, state.transforms, collapses);
  }

  /** The tree of callers. Nodes keep their numbers, which are in the address. */
  callerTree() {
    const { tree } = this.compute();
    return (this.computed.callers ??= new Work(CallerTree.steps(tree, null)));
  }

  /** The weights of functions and of modules. */
  sums() {
    const { profile } = this;
    const { functions, modules } = profile.header;
    const { tree } = this.compute();
    return (this.computed.lists ??= {
      function: new Work(tree.weightSteps(functions.length + modules.length, (fn) => fn)),
      module: new Work(tree.weightSteps(modules.length, (fn) => profile.moduleOf(fn))),
    });
  }

  /**
   * By how much the shares of nodes have changed since the profile before.
   * @param {Tree} tree
   * @param {(before: CalleeTree) => Tree} make The same tree of the profile before.
   */
  changes(tree, make) {
    const { before } = this.compute();
    if (!before) return null;
    const same = new SameNodes(tree, make(before), this.functionsBefore);
    return (/** @type {number} */ node) => same.change(node);
  }

  /** @param {number} fn */
  label(fn) {
    if (fn < 0) return "all";
    const name = this.profile.nameOf(fn);
    if (this.state.full) return name;
    let short = this.shortNames.get(fn);
    if (short === undefined) this.shortNames.set(fn, (short = withoutTemplateArguments(name)));
    return short;
  }

  /** @param {number} weight */
  share(weight) {
    const percent = (100 * weight) / (this.compute().tree.total(0) || 1);
    return `${percent.toFixed(2)} %`;
  }

  /**
   * @param {number} weight
   * @param {State["state"]} [state] Of which samples it is.
   */
  weightText(weight, state = this.state.state) {
    const isTime = this.profile.header.is_time || state === "off";
    if (!isTime) return `${weight.toLocaleString("en")} ${this.profile.header.event}`;
    if (weight >= 1e9) return `${(weight / 1e9).toFixed(2)} s`;
    return weight >= 1e6 ? `${(weight / 1e6).toFixed(2)} ms` : `${(weight / 1e3).toFixed(1)} µs`;
  }

  isFound() {
    const matches = matcher(this.state.search);
    if (!matches) return null;
    const { header } = this.profile;
    const count = header.functions.length + header.modules.length;
    const found = Uint8Array.from({ length: count }, (_, fn) => Number(matches(this.profile.nameOf(fn))));
    return (/** @type {number} */ fn) => fn >= 0 && found[fn] === 1;
  }

  render() {
    const { state } = this;
    if (!this.code && (state.view === "source" || state.view === "code")) {
      const data = byId("code", HTMLScriptElement).textContent ?? "";
      decodeCode(data).then((code) => {
        this.code = code;
        this.render();
      });
      return;
    }
    const start = performance.now();
    const { samples, tree, before, collapses } = this.compute();
    const found = this.isFound();
    measured("tree", start);
    this.controls(collapses);
    this.timeline.show(state);
    this.showActivity();
    if (this.shownCompleteness !== samples) this.showCompleteness(samples);
    this.shownCompleteness = samples;
    const matched = found ? tree.weightWith(found) : 0;
    byId("matches", HTMLElement).textContent = found ? `${this.share(matched)} of the weight` : "";
    if (before) {
      const [earlier, later] = [before, tree].map((it) => this.weightText(it.total(0)));
      this.weights.textContent = `Shares are of ${earlier} before and ${later} after.`;
    }
    const focused = /** @type {HTMLElement | null} */ (document.activeElement);
    this.graph = null;
    this.view.replaceChildren();
    if (tree.total(0) === 0) this.view.append(element("p", "No sample passes: widen the selection, or undo what is left out."));
    else if (state.view === "list") this.showList(tree, found);
    else if (state.view === "around") this.showAround(tree, found);
    else if (state.view === "source" || state.view === "code") this.showCode(tree);
    else if (state.view === "tree") {
      const ofBefore = (/** @type {CalleeTree} */ before) => (state.callers ? CallerTree.of(before, null) : before);
      this.showTree("Stacks", state.callers ? this.callerTree().finish() : tree, found, ofBefore);
    }
    else this.showGraph(tree, found);
    this.showSelected(null, null);
    this.showActions();
    if (focused && !focused.isConnected) this.focusAgain(focused);
    measured("render", start);
    document.body.dataset.ready = String(Number(document.body.dataset.ready ?? 0) + 1);
    this.prepare();
  }

  /** Makes trees that may be asked for next while the browser is idle: of a million paths, they take long. */
  prepare() {
    const { tree } = this.compute();
    if (tree.total(0) === 0) return;
    /** @type {Work<NodeWeights> | null} */
    let collapsed = null;
    /** @type {(() => Work<unknown>)[]} */
    const works = [
      () => this.sums().function,
      () => this.callerTree(),
      () => this.timeTree().tree,
      () => this.sums().module,
      () => tree.collapsed(),
      () => (collapsed ??= new Work(NodeWeights.steps(this.profile, tree.samples, tree.collapsed().finish()))),
    ];
    const go = (/** @type {IdleDeadline} */ deadline) => {
      while (works.length > 0 && deadline.timeRemaining() > IDLE_STEP_MS) {
        if (tree !== this.computed.tree) return;
        const work = works[0]();
        if (work.result) works.shift();
        else work.step();
      }
      if (works.length > 0) window.requestIdleCallback(go);
    };
    window.requestIdleCallback?.(go);
  }

  /**
   * Focuses what has replaced an element: the graph, or a button with its text.
   * @param {HTMLElement} old
   */
  focusAgain(old) {
    const all = Array.from(document.querySelectorAll(old.localName));
    const same = old instanceof HTMLCanvasElement ? this.graph?.canvas : all.find((it) => it.textContent === old.textContent);
    /** @type {HTMLElement | undefined} */ (same)?.focus();
  }

  /**
   * Controls as the state has them.
   * @param {boolean} collapses
   */
  controls(collapses) {
    const { state } = this;
    for (const view of this.viewButtons()) view.setAttribute("aria-pressed", String(view.dataset.view === state.view));
    byId("callers", HTMLInputElement).checked = state.callers;
    byId("up", HTMLInputElement).checked = state.up;
    byId("full", HTMLInputElement).checked = state.full;
    byId("recursion", HTMLInputElement).checked = collapses;
    byId("search", HTMLInputElement).value = state.search;
    byId("state", HTMLSelectElement).value = state.state;
    byId("lanes", HTMLSelectElement).value = state.lanes;
    byId("from", HTMLInputElement).value = state.from === null ? "" : (state.from / 1e6).toFixed(6);
    byId("to", HTMLInputElement).value = state.to === null ? "" : (state.to / 1e6).toFixed(6);
    const words = { focus: "only below", hide: "without", module: "collapsed:" };
    const undoWait = button(`waiting for ${state.wait} ✕`, () => this.change({ wait: "", zoom: 0 }));
    undoWait.title = "Undo";
    byId("transforms", HTMLElement).replaceChildren(
      ...(state.wait === "" ? [] : [undoWait]),
      ...state.transforms.map(({ kind, what }, n) => {
        const undo = button(`${words[kind]} ${what} ✕`, () =>
          this.change({ transforms: state.transforms.filter((_, other) => other !== n), zoom: 0 }),
        );
        undo.title = "Undo";
        return undo;
      }),
    );
  }

  /** How long the selected threads are on a CPU, and wait for what: each leads to its stacks. */
  showActivity() {
    const { profile, state } = this;
    const bar = byId("activity", HTMLElement);
    bar.replaceChildren();
    if (!profile.hasOff) return;
    const { on, off } = this.activity();
    const earlier = this.before ? this.activityBefore(this.before) : null;
    /**
     * @param {string} text
     * @param {number} weight
     * @param {number} weightBefore
     * @param {string} colour
     * @param {boolean} isShown
     * @param {Partial<State>} change
     */
    const add = (text, weight, weightBefore, colour, isShown, change) => {
      if (weight === 0 && weightBefore === 0 && !isShown) return;
      const made = button(`${text} `, () => this.change({ ...change, by: null, zoom: 0 }));
      const swatch = element("span", undefined, "swatch");
      swatch.style.background = colour;
      made.prepend(swatch);
      const was = earlier ? `, before ${this.weightText(weightBefore, change.state)}` : "";
      made.append(element("small", this.weightText(weight, change.state) + was));
      made.setAttribute("aria-pressed", String(isShown));
      bar.append(made);
    };
    const isOn = state.state === "on" && state.wait === "";
    if (profile.hasOn) add("on a CPU", on, earlier?.on ?? 0, "var(--on)", isOn, { state: "on", wait: "" });
    const order = Array.from(off.keys()).sort((a, b) => off[b] - off[a]);
    for (const wait of order) {
      const name = profile.header.waits[wait];
      const isShown = state.wait === name;
      const change = { state: /** @type {const} */ ("off"), wait: isShown ? "" : name };
      add(`waits for ${name}`, off[wait], earlier?.off[wait] ?? 0, waitColour(wait), isShown, change);
    }
  }

  /** The weights on a CPU, and off it by what is waited for, of the selected threads, processors and times. */
  activity() {
    const { profile, state } = this;
    const key = JSON.stringify([state.threads, state.cpus, state.from, state.to]);
    if (this.shownActivity?.key !== key) {
      this.shownActivity = { key, ...activityOf(profile, { ...state, state: "all", wait: "" }) };
    }
    return this.shownActivity;
  }

  /**
   * The same of the whole profile before.
   * @param {Profile} before
   */
  activityBefore(before) {
    return (this.earlierActivity ??= activityOf(before, { ...parseState(""), state: "all" }));
  }

  /** @param {Int32Array} samples */
  showCompleteness(samples) {
    const { header } = this.profile;
    const it = completeness(this.profile, samples);
    const stacks = it.complete + it.spliced + it.incomplete;
    const count = (/** @type {number} */ number) => number.toLocaleString("en");
    const share = (/** @type {number} */ part) => shareOf(part, stacks);
    const parts = [
      [it.complete, "complete", "complete directly"],
      [it.spliced, "spliced", "complete by outer frames spliced in"],
      [it.incomplete, "incomplete", "incomplete"],
      [it.kernelThreads + it.noUserRegisters, "other", "without a user stack"],
    ];
    const bar = byId("completeness-bar", HTMLElement);
    bar.replaceChildren();
    for (const [part, className] of parts) {
      const piece = element("span", undefined, String(className));
      piece.style.flexGrow = String(part);
      bar.append(piece);
    }
    const spliced = `: ${share(it.complete)} directly, ${share(it.spliced)} by outer frames spliced in`;
    byId("completeness-line", HTMLElement).textContent =
      `${share(it.complete + it.spliced)} of ${count(stacks)} stacks are complete${it.spliced > 0 ? spliced : ""}` +
      (it.incomplete > 0 ? `; ${count(it.incomplete)} incomplete` : "");
    const body = element("div");
    const table = element("table");
    for (const [part, , text] of parts) {
      const row = table.insertRow();
      row.append(element("td", count(Number(part)), "number"), element("td", String(text)));
    }
    const reasons = it.reasons.map(([reason, n]) => [n, `incomplete: ${reason}`]);
    const rows = [[it.guessed, "of the complete ones with guessed frames"], ...reasons];
    if (header.lost > 0) rows.push([header.lost, "lost by the recording (all of it)"]);
    for (const [n, text] of rows) {
      const row = table.insertRow();
      row.append(element("td", count(Number(n)), "number"), element("td", String(text)));
    }
    body.append(table);
    body.append(element("p", `The whole recording: ${header.completeness}`));
    byId("completeness-reasons", HTMLElement).replaceChildren(body);
  }

  /**
   * @param {CalleeTree} tree
   * @param {((fn: number) => boolean) | null} found
   */
  showList(tree, found) {
    const { profile, state } = this;
    const { modules } = profile.header;
    const { before, samples } = this.compute();
    if (before) return this.showChanges(tree, before, found);
    const usual = state.state === "off" && state.wait === "" ? "wait" : "function";
    // On a CPU, nothing is waited for.
    const listed = state.state === "on" && state.by === "wait" ? "function" : (state.by ?? usual);
    /** The names of what is listed; null for functions. */
    const names = { function: null, module: modules, wait: profile.header.waits }[listed];
    const { own, total } = listed === "wait" ? waitWeights(profile, samples) : this.sums()[listed].finish();
    const matches = matcher(state.search);
    /** @type {import("./tables.mjs").ListRow[]} */
    const rows = [];
    total.forEach((weight, id) => {
      if (weight === 0 || (names ? matches && !matches(names[id]) : found && !found(id))) return;
      const name = names ? names[id] : this.label(id);
      rows.push({ id, name, module: names ? "" : profile.moduleName(id), own: own[id], total: weight });
    });
    const by = element("div", undefined, "bar");
    /** @type {("function" | "module" | "wait")[]} */
    const kinds = profile.hasOff ? ["function", "module", "wait"] : ["function", "module"];
    for (const kind of kinds) {
      const isElsewhere = kind === "wait" && state.state === "on";
      const choose = button(kind === "wait" ? "by what it waits for" : `by ${kind}`, () =>
        this.change({ by: kind, ...(isElsewhere ? { state: "off", zoom: 0 } : {}) }),
      );
      choose.setAttribute("aria-pressed", String(listed === kind));
      by.append(choose);
    }
    this.view.append(by);
    showList(this.view, rows, {
      sort: state.sort,
      hasModules: names === null,
      selected: names ? -1 : this.selected().id ?? -1,
      share: (weight) => this.share(weight),
      onSort: (sort) => this.change({ sort }),
      onSelect: (id) => {
        if (listed === "module") this.transform("module", modules[id]);
        else if (names) this.change({ wait: names[id], by: null, view: "flame", zoom: 0 });
        else this.change({ fn: profile.key(id) });
      },
    });
  }

  /**
   * The list of functions, with their shares before and after.
   * @param {CalleeTree} tree
   * @param {CalleeTree} before
   * @param {((fn: number) => boolean) | null} found
   */
  showChanges(tree, before, found) {
    const { profile, state } = this;
    const old = /** @type {Profile} */ (this.before);
    const shares = (/** @type {Sums} */ sums, /** @type {CalleeTree} */ it) => {
      const percent = (/** @type {Float64Array} */ all) => all.map((weight) => (100 * weight) / (it.total(0) || 1));
      return { own: percent(sums.own), total: percent(sums.total) };
    };
    const countBefore = old.header.functions.length + old.header.modules.length;
    const after = shares(this.sums().function.finish(), tree);
    const earlier = shares(before.weightsBy(countBefore, (fn) => fn), before);
    /** @type {import("./tables.mjs").ChangeRow[]} */
    const rows = [];
    const isJoined = new Uint8Array(earlier.total.length);
    after.total.forEach((total, id) => {
      const was = this.functionsBefore[id];
      // Only the first of several functions that were one has its share.
      const isFirst = was >= 0 && !isJoined[was];
      if (isFirst) isJoined[was] = 1;
      const [own, totalBefore] = isFirst ? [earlier.own[was], earlier.total[was]] : [0, 0];
      if ((total === 0 && totalBefore === 0) || (found && !found(id))) return;
      const [name, module] = [this.label(id), profile.moduleName(id)];
      rows.push({ id, name, module, own: [own, after.own[id]], total: [totalBefore, total] });
    });
    const matches = matcher(state.search);
    earlier.total.forEach((total, id) => {
      if (isJoined[id] || total === 0 || (matches && !matches(old.nameOf(id)))) return;
      const name = state.full ? old.nameOf(id) : withoutTemplateArguments(old.nameOf(id));
      rows.push({ id: -1, name, module: old.moduleName(id), own: [earlier.own[id], 0], total: [total, 0] });
    });
    showChanges(this.view, rows, {
      sort: state.sort,
      selected: this.selected().id ?? -1,
      onSort: (sort) => this.change({ sort }),
      onSelect: (id) => this.change({ fn: profile.key(id) }),
    });
  }

  /**
   * @param {string} label
   * @param {Tree} tree
   * @param {((fn: number) => boolean) | null} found
   * @param {(before: CalleeTree) => Tree} before The same tree of the profile before.
   */
  showTree(label, tree, found, before) {
    const { profile } = this;
    showTree(this.view, tree, {
      label,
      change: this.changes(tree, before),
      name: (fn) => this.label(fn),
      module: (fn) => profile.moduleName(fn),
      mark: (node) => marks(tree, node, profile.kindOf(tree.fn(node))),
      share: (weight) => this.share(weight),
      isFound: found,
      onSelect: (node) => this.showSelected(tree, node),
    });
  }

  /**
   * @param {CalleeTree} tree
   * @param {((fn: number) => boolean) | null} found
   */
  showAround(tree, found) {
    const { id } = this.selected();
    if (id === undefined) {
      this.view.append(element("p", "Select a function first: in the graph, the list or the tree."));
      return;
    }
    this.view.append(element("h2", "Callers"));
    const idBefore = this.functionsBefore[id] ?? -1;
    this.showTree("Callers", CallerTree.of(tree, id), found, (before) => CallerTree.of(before, idBefore));
    this.view.append(element("h2", "Callees"));
    this.showTree("Callees", tree.focused(id), found, (before) => before.focused(idBefore));
  }

  /**
   * The source or the instructions of the selected function, or else of the one with the greatest own weight.
   * @param {CalleeTree} tree
   */
  showCode(tree) {
    const { profile, state, code } = this;
    if (!code) return;
    let fn = this.selected().id;
    if (fn === undefined) {
      // Without collapsed modules, which have no code.
      const own = this.sums().function.finish().own.subarray(0, profile.header.functions.length);
      fn = own.indexOf(own.reduce((a, b) => Math.max(a, b), 0));
      this.state = { ...state, fn: profile.key(fn) };
      history.replaceState(null, "", `#${formatState(this.state)}`);
    }
    this.view.append(element("h2", this.label(fn)));
    const options = {
      name: this.label(fn),
      file: profile.fileOf(fn),
      line: state.line,
      share: (/** @type {number} */ weight) => this.share(weight),
      short: (/** @type {string} */ name) => (state.full ? name : withoutTemplateArguments(name)),
      onLine: (/** @type {number} */ line) => this.change({ view: state.view === "code" ? "source" : "code", line }),
    };
    if (state.view === "source") {
      showSource(this.view, code, lineWeights(profile, tree, fn), options);
    } else {
      const found = code.functions.get(fn);
      const count = found?.parts.reduce((sum, part) => sum + part.addresses.length, 0) ?? 0;
      showInstructions(this.view, code, found, instructionWeights(profile, tree, fn, count), options);
    }
  }

  /**
   * @param {CalleeTree} callees
   * @param {((fn: number) => boolean) | null} found
   */
  showGraph(callees, found) {
    const { profile, state } = this;
    /** @type {Tree} */
    let tree = callees;
    if (state.view === "time") {
      const byTime = this.timeTree();
      const what = "gaps between samples are left out. The time line selects another thread.";
      this.view.append(element("p", `${profile.threadName(byTime.thread)}, ${what}`));
      tree = byTime.tree.finish();
    }
    else if (state.callers) tree = this.callerTree().finish();
    const isMerged = state.view !== "time";
    const graph = new Graph(
      this.view,
      (node, isPassing) => this.showSelected(tree, node, isPassing),
      (node) => this.change({ zoom: node }),
    );
    graph.show({
      tree,
      zoom: tree.has(state.zoom) ? state.zoom : 0,
      up: state.up,
      label: (fn) => this.label(fn),
      kind: (fn) => profile.kindOf(fn),
      hue: (fn) => (fn < 0 ? 0 : profile.moduleOf(fn)),
      isFound: found,
      change: isMerged ? this.changes(tree, (before) => (state.callers ? CallerTree.of(before, null) : before)) : null,
    });
    this.graph = graph;
  }

  /** The stacks of one thread: the selected one with the greatest weight. */
  timeTree() {
    const { profile } = this;
    const { tree, samples } = this.compute();
    if (!this.computed.byTime) {
      const { thread, samples: own } = ofHeaviestThread(profile, samples);
      this.computed.byTime = { thread, tree: new Work(TimeTree.steps(profile, tree, own, TIME_COLUMNS)) };
    }
    return this.computed.byTime;
  }

  /**
   * Says what a node is; without one, the selected function.
   * @param {Tree | null} tree
   * @param {number | null} node
   * @param {boolean} [isPassing] Whether it stays as selected as it was.
   */
  showSelected(tree, node, isPassing) {
    const { profile } = this;
    const line = byId("selected", HTMLElement);
    const fn = tree && node !== null ? tree.fn(node) : this.selected().id ?? -1;
    if (fn < 0) {
      line.textContent = tree || this.state.view === "list" ? `all: ${this.weightText(this.compute().tree.total(0))}` : "";
      return;
    }
    const name = element("strong", profile.nameOf(fn));
    const facts = [profile.moduleName(fn), profile.fileOf(fn)];
    if (tree && node !== null) {
      const isTime = this.state.view === "time";
      const total = tree.total(node);
      facts.push(isTime ? `${(total / 1000).toFixed(3)} ms in a row` : `${this.share(total)} (${this.weightText(total)})`);
      if (!isTime && tree.own(node) > 0) facts.push(`own ${this.share(tree.own(node))}`);
      const change = this.graph?.content?.tree === tree ? this.graph.content.change : null;
      if (change) facts.push(`${changeText(change(node))} since before`);
      facts.push(marks(tree, node, profile.kindOf(fn)).trim());
    }
    line.replaceChildren(name, ` ${facts.filter((fact) => fact !== "").join(" · ")}`);
    if (tree && !isPassing && !profile.isModule(fn) && profile.key(fn) !== this.state.fn) {
      // Moving the cursor selects without a step in the browser's history.
      this.state = { ...this.state, fn: profile.key(fn) };
      history.replaceState(null, "", `#${formatState(this.state)}`);
      this.showActions();
    }
  }

  showActions() {
    const { id, fn, module } = this.selected();
    const bar = byId("actions", HTMLElement);
    bar.replaceChildren();
    if (id === undefined) return;
    bar.append(
      element("span", this.label(id)),
      button("Focus", () => this.transform("focus", fn)),
      button("Hide", () => this.transform("hide", fn)),
      button(`Collapse ${module}`, () => this.transform("module", module)),
      button("Callers and callees", () => this.show("around")),
      button("Source", () => this.show("source")),
      button("Instructions", () => this.show("code")),
    );
  }
}

/**
 * The weights of the samples that a state selects: on a CPU, and off it by what is waited for.
 * @param {Profile} profile
 * @param {State} state
 */
function activityOf(profile, state) {
  const samples = select(profile, state);
  let on = 0;
  for (const sample of samples) if (!profile.isOff(sample)) on += profile.weight[sample];
  return { on, off: waitWeights(profile, samples).own };
}

/**
 * What is special about a node.
 * @param {Tree} tree
 * @param {number} node
 * @param {string} kind
 */
function marks(tree, node, kind) {
  const part = (/** @type {number} */ weight) => {
    const percent = (100 * weight) / (tree.total(node) || 1);
    return percent >= 99.995 ? "" : ` ${percent.toFixed(2)} %`;
  };
  const texts = [];
  if (kind === "kernel") texts.push("kernel");
  if (kind === "jit") texts.push("generated at run time");
  if (tree.isInlined(node)) texts.push("inlined");
  if (tree.spliced(node) > 0) texts.push(`spliced${part(tree.spliced(node))}`);
  if (tree.guessed(node) > 0) texts.push(`guessed${part(tree.guessed(node))}`);
  return texts.length > 0 ? ` ${texts.join(", ")}` : "";
}

try {
  const before = document.getElementById("before");
  new Page(
    await decode(byId("profile", HTMLScriptElement).textContent ?? ""),
    before ? await decode(before.textContent ?? "") : null,
  );
} catch (error) {
  byId("view", HTMLDivElement).append(element("p", `This page cannot be shown: ${error}`, "error"));
  throw error;
}
