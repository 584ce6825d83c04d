// What is shown, as it stands in the page's address after `#`.

/**
 * @typedef {{kind: "focus" | "hide" | "module", what: string}} Transform
 * @typedef {object} State
 * @property {"flame" | "time" | "list" | "tree" | "around" | "source" | "code"} view
 * @property {"threads" | "cpus"} lanes
 * @property {"on" | "off" | "all"} state Which samples.
 * @property {number[]} threads All if empty.
 * @property {number[]} cpus All if empty.
 * @property {number | null} from In microseconds since the start.
 * @property {number | null} to
 * @property {string} search
 * @property {boolean} callers Whether trees begin with the innermost functions.
 * @property {boolean} up Whether graphs have the root below.
 * @property {boolean} full Whether names have their template arguments.
 * @property {boolean | null} recursion Whether recursion is collapsed; null: if stacks are very deep.
 * @property {Transform[]} transforms
 * @property {number} zoom A node of the graph; 0 is all of it.
 * @property {string} fn The selected function, by its key.
 * @property {number} line The line of its source that is looked at; 0 for none.
 * @property {"own" | "total" | "name" | "module"} sort
 * @property {"function" | "module" | "wait" | null} by Null: by function, or off a CPU by what is waited for.
 * @property {string} wait Only samples that wait for this; all if empty.
 */

const VIEWS = /** @type {const} */ (["flame", "time", "list", "tree", "around", "source", "code"]);
const SORTS = /** @type {const} */ (["own", "total", "name", "module"]);
const LISTS = /** @type {const} */ (["function", "module", "wait"]);
const TRANSFORMS = /** @type {const} */ (["focus", "hide", "module"]);

/**
 * The state in an address. Missing and invalid values have their defaults.
 * @param {string} hash
 * @returns {State}
 */
export function parseState(hash) {
  const values = new URLSearchParams(hash.replace(/^#/, ""));
  /**
   * @template T
   * @param {string} name
   * @param {readonly [T, ...T[]]} known
   */
  const one = (name, known) => known.find((value) => value === values.get(name)) ?? known[0];
  const number = (/** @type {string} */ name) => {
    const value = parseFloat(values.get(name) ?? "");
    return Number.isFinite(value) ? value : null;
  };
  const numbers = (/** @type {string} */ name) =>
    (values.get(name) ?? "").split(",").map((text) => parseInt(text, 10)).filter((n) => n >= 0);
  /** @type {Transform[]} */
  const transforms = [];
  for (const kind_what of values.getAll("do")) {
    const [, word, what] = kind_what.match(/^(\w+):(.*)$/s) ?? [];
    const kind = TRANSFORMS.find((known) => known === word);
    if (kind) transforms.push({ kind, what });
  }
  const recursion = values.get("recursion");
  return {
    view: one("view", VIEWS),
    lanes: one("lanes", ["threads", "cpus"]),
    state: one("state", ["on", "off", "all"]),
    threads: numbers("threads"),
    cpus: numbers("cpus"),
    from: number("from"),
    to: number("to"),
    search: values.get("search") ?? "",
    callers: values.has("callers"),
    up: values.has("up"),
    full: values.has("full"),
    recursion: recursion === null ? null : recursion === "collapsed",
    transforms,
    zoom: Math.trunc(number("zoom") ?? 0),
    fn: values.get("fn") ?? "",
    line: Math.trunc(number("line") ?? 0),
    sort: one("sort", SORTS),
    by: LISTS.find((by) => by === values.get("by")) ?? null,
    wait: values.get("wait") ?? "",
  };
}

/**
 * The address of a state.
 * @param {State} state
 */
export function formatState(state) {
  const values = new URLSearchParams();
  const usual = parseState("");
  for (const name of /** @type {const} */ (["view", "lanes", "state", "search", "fn", "sort", "wait"])) {
    if (state[name] !== usual[name]) values.set(name, state[name]);
  }
  for (const name of /** @type {const} */ (["callers", "up", "full"])) {
    if (state[name]) values.set(name, "1");
  }
  for (const name of /** @type {const} */ (["threads", "cpus"])) {
    if (state[name].length > 0) values.set(name, state[name].join(","));
  }
  for (const name of /** @type {const} */ (["from", "to"])) {
    const value = state[name];
    if (value !== null) values.set(name, String(Math.round(value)));
  }
  if (state.by !== null) values.set("by", state.by);
  if (state.recursion !== null) values.set("recursion", state.recursion ? "collapsed" : "shown");
  for (const { kind, what } of state.transforms) values.append("do", `${kind}:${what}`);
  for (const name of /** @type {const} */ (["zoom", "line"])) {
    if (state[name] !== 0) values.set(name, String(state[name]));
  }
  return values.toString();
}
