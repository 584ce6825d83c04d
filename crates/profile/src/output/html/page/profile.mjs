// The profile, decoded from the page. `content.rs` describes the data.

/**
 * @typedef {{name: string, module: number, file?: number, kind: "user" | "kernel" | "jit"}} PageFunction
 * @typedef {{name: string, tid: number, process: string, pid: number}} PageThread
 * @typedef {{reason: string, is_root: boolean, has_user_stack: boolean}} PageEnd
 * @typedef {{name: string, count: number, is_signed: boolean, bytes: number}} PageColumn
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
 * @property {PageFunction[]} functions
 * @property {string[]} modules
 * @property {string[]} files
 * @property {PageColumn[]} columns
 */

export const GUESSED = 1;
export const SPLICED = 2;
export const INLINED = 4;
export const OFF_CPU = 32;
const END = 31;

export class Profile {
  /**
   * @param {PageHeader} header
   * @param {Map<string, Float64Array | Int32Array>} columns
   */
  constructor(header, columns) {
    const column = (/** @type {string} */ name) => columns.get(name) ?? new Int32Array(0);
    this.header = header;
    const depths = column("node.depth");
    const functions = column("node.function");
    const flags = column("node.flags");
    /** The number of nodes. They are numbered from 1; 0 is the root. */
    this.nodeCount = depths.length;
    this.parent = new Int32Array(this.nodeCount + 1);
    this.fn = new Int32Array(this.nodeCount + 1);
    this.flags = new Uint8Array(this.nodeCount + 1);
    /** The flags of a node and all its callers. */
    this.pathFlags = new Uint8Array(this.nodeCount + 1);
    const path = [0];
    let markedCount = 0;
    for (let n = 1; n <= this.nodeCount; n++) {
      const depth = depths[n - 1];
      const parent = path[depth - 1];
      path[depth] = n;
      this.parent[n] = parent;
      this.fn[n] = functions[n - 1];
      this.flags[n] = flags[n - 1];
      this.pathFlags[n] = this.pathFlags[parent] | flags[n - 1];
      if (flags[n - 1] > 0) markedCount += 1;
    }
    /** The nodes with flags. */
    this.marked = new Int32Array(markedCount);
    for (let n = 1, at = 0; at < markedCount; n++) {
      if (this.flags[n] > 0) this.marked[at++] = n;
    }
    /** Of each sample. */
    this.node = Int32Array.from(column("sample.node"));
    this.time = column("sample.time");
    this.weight = column("sample.weight");
    this.cpu = Int32Array.from(column("sample.cpu"));
    this.state = Uint8Array.from(column("sample.state"));
    this.sampleCount = this.node.length;
    this.thread = new Int32Array(this.sampleCount);
    /** The first sample of each thread, and at last their number. */
    this.threadStart = [0];
    column("thread.samples").forEach((count, thread) => {
      const start = this.threadStart[thread];
      this.thread.fill(thread, start, start + count);
      this.threadStart.push(start + count);
    });
    this.start = Infinity;
    this.end = -Infinity;
    /** The processors, ascending. */
    this.cpus = [...new Set(this.cpu)].sort((a, b) => a - b);
    const lanes = new Map(this.cpus.map((cpu, lane) => [cpu, lane]));
    /** The index of each sample's processor among them. */
    this.cpuLane = this.cpu.map((cpu) => lanes.get(cpu) ?? 0);
    /** Whether there are samples on and off a CPU. */
    this.hasOn = false;
    this.hasOff = false;
    for (let n = 0; n < this.sampleCount; n++) {
      this.start = Math.min(this.start, this.beginOf(n));
      this.end = Math.max(this.end, this.time[n]);
      if (this.isOff(n)) this.hasOff = true;
      else this.hasOn = true;
    }
    if (this.sampleCount === 0) this.start = this.end = 0;
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

  /** @param {number} sample */
  endOf(sample) {
    return this.header.ends[this.state[sample] & END];
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
 * Decodes the data.
 * @param {string} base64
 */
export async function decode(base64) {
  const text = atob(base64);
  const packed = new Uint8Array(text.length);
  for (let n = 0; n < text.length; n++) packed[n] = text.charCodeAt(n);
  // @ts-ignore: TypeScript has it from 5.1 on.
  const inflate = new DecompressionStream("deflate");
  const stream = new Blob([packed]).stream().pipeThrough(inflate);
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const headerBytes = new DataView(bytes.buffer).getUint32(0, true);
  const json = new TextDecoder().decode(bytes.subarray(4, 4 + headerBytes));
  /** @type {PageHeader} */
  const header = JSON.parse(json, (_, value) => (typeof value === "string" ? escaped(value) : value));
  if (header.version !== 1) throw new Error(`the data has version ${header.version}`);
  let at = 4 + headerBytes;
  /** @type {Map<string, Float64Array | Int32Array>} */
  const columns = new Map();
  for (const column of header.columns) {
    columns.set(column.name, numbers(bytes.subarray(at, at + column.bytes), column));
    at += column.bytes;
  }
  return new Profile(header, columns);
}

/**
 * A text without control characters, and without what changes the direction of text: these are
 * shown as escapes.
 * @param {string} text
 */
function escaped(text) {
  const escape = (/** @type {string} */ it) => `\\u{${it.codePointAt(0)?.toString(16)}}`;
  return text.replace(/[\p{Cc}\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/gu, escape);
}

/**
 * Decodes a column.
 * @param {Uint8Array} bytes
 * @param {PageColumn} column
 */
function numbers(bytes, column) {
  const isLarge = column.name === "sample.time" || column.name === "sample.weight";
  const all = isLarge ? new Float64Array(column.count) : new Int32Array(column.count);
  let at = 0;
  let previous = 0;
  for (let n = 0; n < column.count; n++) {
    let value = 0;
    let factor = 1;
    let byte;
    do {
      byte = bytes[at++];
      value += (byte & 0x7f) * factor;
      factor *= 128;
    } while (byte > 0x7f);
    if (column.is_signed) {
      previous += value % 2 === 0 ? value / 2 : -(value + 1) / 2;
      value = previous;
    }
    all[n] = value;
  }
  return all;
}
