// The profile, decoded from the page. `content.rs` describes the data.

/**
 * @typedef {{name: string, module: number, file?: number, line?: number, kind: "user" | "kernel" | "jit"}} PageFunction
 * @typedef {{name: string, tid: number, process: string, pid: number}} PageThread
 * @typedef {{reason: string, is_root: boolean, has_user_stack: boolean}} PageEnd
 * @typedef {{name: string, count: number, is_signed: boolean, bytes: number}} PageColumn
 * @typedef {Float64Array | Int32Array | Uint8Array} Numbers
 * @typedef {object} PageHeader
 * @property {number} version
 * @property {string} title
 * @property {string} host
 * @property {string} kernel
 * @property {string} arch
 * @property {string} tool
 * @property {string} event
 * @property {number} frequency
 * @property {boolean} is_time
 * @property {number} started
 * @property {string} completeness
 * @property {number} lost
 * @property {PageThread[]} threads
 * @property {PageEnd[]} ends
 * @property {string[]} waits
 * @property {PageFunction[]} functions
 * @property {string[]} modules
 * @property {string[]} files
 * @property {PageColumn[]} columns
 */

export const GUESSED = 1;
export const SPLICED = 2;
export const INLINED = 4;
export const OFF_CPU = 32;
export const END = 31;
const WAIT_SHIFT = 6;

export class Profile {
  /**
   * @param {PageHeader} header
   * @param {Map<string, Numbers>} columns
   */
  constructor(header, columns) {
    const column = (/** @type {string} */ name) => columns.get(name) ?? new Int32Array(0);
    this.header = header;
    const depths = column("node.depth");
    const numbers = column("node.callee");
    const added = column("callee.function");
    const flags = column("node.flags");
    /** The number of nodes. They are numbered from 1; 0 is the root. */
    this.nodeCount = depths.length;
    this.parent = new Int32Array(this.nodeCount + 1);
    this.fn = new Int32Array(this.nodeCount + 1);
    this.flags = new Uint8Array(this.nodeCount + 1);
    /** The flags of a node and all its callers. */
    this.pathFlags = new Uint8Array(this.nodeCount + 1);
    /** The last node below each node: with it, nodes are ranges. */
    this.last = new Int32Array(this.nodeCount + 1);
    /** The nodes have their own numbers: see `Nodes`. */
    this.map = null;
    /** The greatest number of frames in a stack. */
    this.maxDepth = 0;
    /**
     * The outermost nodes.
     * @type {number[]}
     */
    this.outermost = [];
    const { parent, fn, last, pathFlags } = this;
    /**
     * The callees of each function, and last those of none: nodes are numbered by them.
     * @type {number[][]}
     */
    const callees = Array.from({ length: header.functions.length + 1 }, () => []);
    const outermost = callees[header.functions.length];
    /** The last node by depth. */
    const path = [0];
    let [open, next] = [0, 0];
    for (let n = 1; n <= this.nodeCount; n++) {
      const depth = depths[n - 1];
      for (; open >= depth; open--) last[path[open]] = n - 1;
      open = depth;
      const caller = path[depth - 1];
      path[depth] = n;
      parent[n] = caller;
      pathFlags[n] = pathFlags[caller] | flags[n - 1];
      const known = caller === 0 ? outermost : callees[fn[caller]];
      const number = numbers[n - 1];
      fn[n] = number === 0 ? added[next++] : known[number - 1];
      if (number === 0) known.push(fn[n]);
      if (depth > this.maxDepth) this.maxDepth = depth;
      if (depth === 1) this.outermost.push(n);
    }
    for (; open >= 0; open--) last[path[open]] = this.nodeCount;
    this.flags.set(flags, 1);
    /** Of each sample. */
    this.node = new Int32Array(column("sample.node"));
    this.time = column("sample.time");
    this.weight = column("sample.weight");
    this.cpu = new Int32Array(column("sample.cpu"));
    this.state = new Uint16Array(column("sample.state"));
    /** The line of each node, from its function's first one on; empty if none is known. */
    const lines = column("node.line");
    this.line = new Int32Array(lines.length > 0 ? this.nodeCount + 1 : 0);
    if (lines.length > 0) this.line.set(lines, 1);
    /** The instruction of each sample; empty if none is known. */
    this.place = column("sample.place");
    this.sampleCount = this.node.length;
    this.thread = new Int32Array(this.sampleCount);
    /** The first sample of each thread, and at last their number. */
    this.threadStart = [0];
    column("thread.samples").forEach((count, thread) => {
      const start = this.threadStart[thread];
      this.thread.fill(thread, start, start + count);
      this.threadStart.push(start + count);
    });
    /** @type {Map<number, number>} */
    const lanes = new Map();
    for (let n = 0; n < this.sampleCount; n++) if (!lanes.has(this.cpu[n])) lanes.set(this.cpu[n], 0);
    /** The processors, ascending. */
    this.cpus = [...lanes.keys()].sort((a, b) => a - b);
    this.cpus.forEach((cpu, lane) => lanes.set(cpu, lane));
    /** The index of each sample's processor among them. */
    this.cpuLane = this.cpu.map((cpu) => lanes.get(cpu) ?? 0);
    // Whether there are samples on and off a CPU, and when they begin and end, in microseconds.
    let [start, end, off] = [Infinity, -Infinity, 0];
    for (let n = 0; n < this.sampleCount; n++) {
      start = Math.min(start, this.beginOf(n));
      end = Math.max(end, this.time[n]);
      off += this.state[n] & OFF_CPU;
    }
    this.hasOff = off > 0;
    this.hasOn = off < OFF_CPU * this.sampleCount;
    this.start = this.sampleCount === 0 ? 0 : start;
    this.end = this.sampleCount === 0 ? 0 : end;
    /** @type {Uint8Array | null} */
    this.keys = null;
    /** @type {Map<string, number>} */
    this.functionByKey = new Map();
    header.functions.forEach((_, id) => this.functionByKey.set(this.key(id), id));
  }

  /** @param {number} sample */
  isOff(sample) {
    return (this.state[sample] & OFF_CPU) !== 0;
  }

  /**
   * When the stretch of a sample began, in microseconds: a wait ends with its sample.
   * @param {number} sample
   */
  beginOf(sample) {
    const isTime = this.header.is_time || this.isOff(sample);
    const length = isTime ? this.weight[sample] / 1000 : 1e6 / (this.header.frequency || 1000);
    return this.time[sample] - length;
  }

  /** For each sample, the index of its end, and in the lowest two bits how its callers were found. */
  completenessKeys() {
    if (!this.keys) {
      this.keys = new Uint8Array(this.sampleCount);
      for (let n = 0; n < this.sampleCount; n++) {
        this.keys[n] = ((this.state[n] & END) << 2) | (this.pathFlags[this.node[n]] & (SPLICED | GUESSED));
      }
    }
    return this.keys;
  }

  /**
   * The module of a function; a collapsed module comes after all functions.
   * @param {number} fn
   */
  moduleOf(fn) {
    const functions = this.header.functions;
    return fn < functions.length ? functions[fn].module : fn - functions.length;
  }

  /** @param {number} fn */
  moduleName(fn) {
    return this.header.modules[this.moduleOf(fn)];
  }

  /** @param {number} fn */
  isModule(fn) {
    return fn >= this.header.functions.length;
  }

  /** @param {number} fn */
  kindOf(fn) {
    return this.isModule(fn) ? "module" : this.header.functions[fn].kind;
  }

  /** @param {number} fn */
  nameOf(fn) {
    return this.isModule(fn) ? `[${this.moduleName(fn)}]` : this.header.functions[fn].name;
  }

  /** @param {number} fn */
  fileOf(fn) {
    const file = this.isModule(fn) ? undefined : this.header.functions[fn].file;
    return file === undefined ? "" : this.header.files[file];
  }

  /**
   * What the thread of a sample waits for, as an index in `waits`; -1 on a CPU.
   * @param {number} sample
   */
  waitIndex(sample) {
    return (this.state[sample] >> WAIT_SHIFT) - 1;
  }

  /**
   * What the thread of a sample waits for; empty on a CPU.
   * @param {number} sample
   */
  waitOf(sample) {
    return this.header.waits[this.waitIndex(sample)] ?? "";
  }

  /**
   * The name of a function in addresses.
   * @param {number} fn
   */
  key(fn) {
    return `${this.moduleName(fn)}!${this.nameOf(fn)}`;
  }

  /** @param {number} thread */
  threadName(thread) {
    const { name, tid } = this.header.threads[thread];
    return `${name} [${tid}]`;
  }
}

/**
 * Notes how long a step has taken, for the browser's tools and `cargo bench`.
 * @param {string} step
 * @param {number} start
 */
export function measured(step, start) {
  performance.measure(step, { start });
}

/**
 * @param {string} base64
 * @returns {Uint8Array}
 */
function fromBase64(base64) {
  // @ts-ignore: browsers have it since 2025.
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(base64);
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let n = 0; n < text.length; n++) bytes[n] = text.charCodeAt(n);
  return bytes;
}

/**
 * The bytes of an element.
 * @param {string} base64
 */
export async function inflated(base64) {
  const packed = fromBase64(base64);
  // @ts-ignore: TypeScript has it from 5.1 on.
  const inflate = new DecompressionStream("deflate");
  const stream = new Blob([packed]).stream().pipeThrough(inflate);
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/**
 * Decodes the data.
 * @param {string} base64
 */
export async function decode(base64) {
  const start = performance.now();
  const bytes = await inflated(base64);
  measured("inflate", start);
  const headerBytes = new DataView(bytes.buffer).getUint32(0, true);
  const json = new TextDecoder().decode(bytes.subarray(4, 4 + headerBytes));
  /** @type {PageHeader} */
  const header = JSON.parse(json, (_, value) => (typeof value === "string" ? escaped(value) : value));
  if (header.version !== 2) throw new Error(`the data has version ${header.version}`);
  const decoding = performance.now();
  let at = 4 + headerBytes;
  /** @type {Map<string, Numbers>} */
  const columns = new Map();
  for (const column of header.columns) {
    const isLarge = column.name === "sample.time" || column.name === "sample.weight";
    const decoded = (isLarge ? largeNumbers : numbers)(bytes.subarray(at, at + column.bytes), column);
    columns.set(column.name, decoded);
    at += column.bytes;
  }
  const profile = new Profile(header, columns);
  measured("decode", decoding);
  return profile;
}

/**
 * A text without control characters, and without what changes the direction of text: these are
 * shown as escapes.
 * @param {string} text
 */
export function escaped(text) {
  const escape = (/** @type {string} */ it) => `\\u{${it.codePointAt(0)?.toString(16)}}`;
  return text.replace(/[\p{Cc}\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/gu, escape);
}

/**
 * Decodes a column of numbers that fit 32 bits.
 * @param {Uint8Array} bytes
 * @param {PageColumn} column
 */
function numbers(bytes, { count, is_signed }) {
  // Each has one byte.
  if (bytes.length === count && !is_signed) return bytes;
  const all = new Int32Array(count);
  let at = 0;
  let previous = 0;
  for (let n = 0; n < count; n++) {
    let byte = bytes[at++];
    let value = byte & 0x7f;
    for (let shift = 7; byte > 0x7f; shift += 7) {
      byte = bytes[at++];
      value |= (byte & 0x7f) << shift;
    }
    if (is_signed) value = previous = (previous + ((value >>> 1) ^ -(value & 1))) | 0;
    all[n] = value;
  }
  return all;
}

/**
 * Decodes a column of numbers that may have more bits than JavaScript's bitwise operations.
 * @param {Uint8Array} bytes
 * @param {PageColumn} column
 */
function largeNumbers(bytes, { count, is_signed }) {
  const all = new Float64Array(count);
  let at = 0;
  let previous = 0;
  for (let n = 0; n < count; n++) {
    let byte = bytes[at++];
    let value = byte & 0x7f;
    for (let factor = 128; byte > 0x7f; factor *= 128) {
      byte = bytes[at++];
      value += (byte & 0x7f) * factor;
    }
    if (is_signed) value = previous += value % 2 === 0 ? value / 2 : -(value + 1) / 2;
    all[n] = value;
  }
  return all;
}
