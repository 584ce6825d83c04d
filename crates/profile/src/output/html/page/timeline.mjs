// The time line: a lane for each thread or processor, with the time on and off a CPU.

import { Profile } from "./profile.mjs";

/** @typedef {import("./state.mjs").State} State */

const LANE_HEIGHT_PX = 22;
const OFF_HEIGHT_PX = 5;
const ON_HEIGHT_PX = LANE_HEIGHT_PX - OFF_HEIGHT_PX - 1;
/** Between two times of the axis, at least. */
const TICK_PX = 80;
const MAX_LANES_AT_FIRST = 6;
/** A profile of others may have any number. */
const MAX_LANES = 500;
/** The colours of what is waited for, in the order of a profile's `waits`. */
const WAIT_COLOURS = [
  "#cf4a33",
  "#9a9aa5",
  "#3a9a9a",
  "#7a9a2e",
  "#2e8d57",
  "#8c5a3c",
  "#8a6fc0",
  "#cc679c",
  "#5a70d2",
  "#b08bb5",
  "#d9a124",
  "#b0743a",
];

/**
 * The colour of what is waited for, by its index in `waits`.
 * @param {number} wait
 */
export function waitColour(wait) {
  return WAIT_COLOURS[wait % WAIT_COLOURS.length];
}

/**
 * The shares of each column's time, by lane and column: on a CPU, and off it for each reason.
 * @typedef {{lanes: Timeline["lanes"], width: number, on: Float32Array, off: Float32Array[]}} Activity
 */

export class Timeline {
  /**
   * @param {HTMLElement} parent
   * @param {Profile} profile
   * @param {(change: Partial<State>) => void} change
   */
  constructor(parent, profile, change) {
    this.parent = parent;
    this.profile = profile;
    this.change = change;
    this.showsAll = false;
    /** @type {{lane: number, id: number, button: HTMLButtonElement, canvas: HTMLCanvasElement}[]} */
    this.lanes = [];
    this.axis = document.createElement("canvas");
    /** @type {Activity | null} */
    this.cached = null;
    /** @type {State | null} */
    this.state = null;
    new ResizeObserver(() => this.draw()).observe(parent);
  }

  /** @param {State} state */
  show(state) {
    const isSame = this.state?.lanes === state.lanes;
    this.state = state;
    if (!isSame) this.build();
    this.draw();
  }

  /** Makes the lanes, the one with the greatest weight first. */
  build() {
    const { profile } = this;
    const isByCpu = this.state?.lanes === "cpus";
    const [laneOf, count] = this.laneOfSamples();
    const weights = new Float64Array(count);
    for (let n = 0; n < profile.sampleCount; n++) {
      if (!profile.isOff(n) || !profile.hasOn) weights[laneOf[n]] += profile.weight[n];
    }
    const order = Array.from(weights.keys()).sort((a, b) => weights[b] - weights[a]);
    const shown = order.slice(0, this.showsAll ? MAX_LANES : MAX_LANES_AT_FIRST);
    this.parent.replaceChildren();
    this.lanes = shown.map((lane) => {
      const id = isByCpu ? profile.cpus[lane] : lane;
      const row = document.createElement("div");
      row.className = "lane";
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = isByCpu ? `processor ${id}` : profile.threadName(id);
      button.title = button.textContent;
      button.addEventListener("click", () => this.toggle(id));
      const canvas = document.createElement("canvas");
      canvas.setAttribute("role", "img");
      canvas.setAttribute("aria-label", `Activity of ${button.textContent} by time`);
      this.listen(canvas);
      row.append(button, canvas);
      this.parent.append(row);
      return { lane, id, button, canvas };
    });
    this.parent.append(this.axisRow());
    if (order.length > shown.length && !this.showsAll) {
      const more = document.createElement("button");
      more.type = "button";
      const all = `Show all ${order.length}`;
      more.textContent = order.length > MAX_LANES ? `Show ${MAX_LANES} of ${order.length}` : all;
      more.addEventListener("click", () => {
        this.showsAll = true;
        this.build();
        this.draw();
      });
      this.parent.append(more);
    }
  }

  /** The row of times below the lanes. */
  axisRow() {
    const row = document.createElement("div");
    row.className = "lane axis";
    this.axis.setAttribute("aria-hidden", "true");
    row.append(document.createElement("span"), this.axis);
    return row;
  }

  /**
   * The lane of each sample, and the number of lanes.
   * @returns {[Int32Array, number]}
   */
  laneOfSamples() {
    const { cpuLane, cpus, thread, header } = this.profile;
    return this.state?.lanes === "cpus" ? [cpuLane, cpus.length] : [thread, header.threads.length];
  }

  /** @param {number} id */
  toggle(id) {
    if (!this.state) return;
    const name = this.state.lanes;
    const selected = this.state[name];
    const others = selected.filter((other) => other !== id);
    this.change({ [name]: others.length < selected.length ? others : [...selected, id], zoom: 0 });
  }

  /**
   * Dragging selects a stretch.
   * @param {HTMLCanvasElement} canvas
   */
  listen(canvas) {
    const timeAt = (/** @type {PointerEvent} */ event) => {
      const share = Math.min(Math.max(event.offsetX / canvas.clientWidth, 0), 1);
      return this.profile.start + share * (this.profile.end - this.profile.start);
    };
    /** @type {number | null} */
    let begin = null;
    canvas.addEventListener("pointerdown", (event) => {
      begin = timeAt(event);
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (begin !== null) this.draw([begin, timeAt(event)]);
      else canvas.title = this.textAt(canvas, event.offsetX);
    });
    canvas.addEventListener("pointerup", (event) => {
      if (begin === null) return;
      const [from, to] = [begin, timeAt(event)].sort((a, b) => a - b);
      begin = null;
      const isClick = to - from < (this.profile.end - this.profile.start) / 500;
      this.change(isClick ? { from: null, to: null, zoom: 0 } : { from, to, zoom: 0 });
    });
    canvas.addEventListener("pointercancel", () => {
      begin = null;
      this.draw();
    });
  }

  /** @param {[number, number]} [dragged] */
  draw(dragged) {
    const { profile, state } = this;
    if (!state) return;
    const width = Math.max(this.lanes[0]?.canvas.clientWidth ?? 0, 1);
    const activity = this.activity(width);
    const length = profile.end - profile.start || 1;
    const [a, b] = dragged ?? [state.from ?? profile.start, state.to ?? profile.end];
    const [from, to] = [Math.min(a, b), Math.max(a, b)];
    const x = (/** @type {number} */ time) => ((time - profile.start) / length) * width;
    const style = getComputedStyle(this.parent);
    const [onColour, veil, quiet] = ["--on", "--veil", "--quiet"].map((name) => style.getPropertyValue(name));
    for (const [row, { id, button, canvas }] of this.lanes.entries()) {
      button.setAttribute("aria-pressed", String(state[state.lanes].includes(id)));
      const context = sized(canvas, width, LANE_HEIGHT_PX);
      if (!context) continue;
      for (let n = 0; n < width; n++) {
        const at = row * width + n;
        const [wait, off] = longest(activity.off, at);
        if (off > 0) {
          context.fillStyle = waitColour(wait);
          context.fillRect(n, LANE_HEIGHT_PX - OFF_HEIGHT_PX, 1, OFF_HEIGHT_PX);
        }
        const on = Math.min(activity.on[at], 1) * ON_HEIGHT_PX;
        context.fillStyle = onColour;
        if (on > 0) context.fillRect(n, ON_HEIGHT_PX - on, 1, on);
      }
      context.fillStyle = veil;
      context.fillRect(0, 0, x(from), LANE_HEIGHT_PX);
      context.fillRect(x(to), 0, width - x(to), LANE_HEIGHT_PX);
    }
    this.drawAxis(width, quiet);
  }

  /**
   * The times below the lanes.
   * @param {number} width
   * @param {string} colour
   */
  drawAxis(width, colour) {
    const context = sized(this.axis, width, LANE_HEIGHT_PX);
    const [start, seconds] = [this.profile.start / 1e6, (this.profile.end - this.profile.start) / 1e6];
    if (!context || seconds <= 0) return;
    const step = tickStep((seconds * TICK_PX) / width);
    const digits = Math.max(-Math.floor(Math.log10(step)), 0);
    context.fillStyle = colour;
    context.font = "12px system-ui, sans-serif";
    context.textBaseline = "top";
    const first = Math.ceil(start / step);
    // As many as have room: times of others may be too great to count on.
    for (let n = 0; n <= width / TICK_PX; n++) {
      const time = (first + n) * step;
      const x = ((time - start) / seconds) * width;
      if (x > width) break;
      const text = `${time.toFixed(digits)} s`;
      context.fillRect(Math.min(x, width - 1), 0, 1, 4);
      context.textAlign = x < TICK_PX / 4 ? "left" : x > width - TICK_PX / 4 ? "right" : "center";
      context.fillText(text, x, 6);
    }
  }

  /**
   * What a lane does at a place: the time, and the shares of that column.
   * @param {HTMLCanvasElement} canvas
   * @param {number} x
   */
  textAt(canvas, x) {
    const { profile, cached, lanes } = this;
    const row = lanes.findIndex((lane) => lane.canvas === canvas);
    if (!cached || row < 0) return "";
    const column = Math.min(Math.max(Math.floor(x), 0), cached.width - 1);
    const at = row * cached.width + column;
    const time = profile.start + (column / cached.width) * (profile.end - profile.start);
    const percent = (/** @type {number} */ share) => `${Math.round(100 * Math.min(share, 1))} %`;
    const on = cached.on[at] > 0 ? [`on a CPU ${percent(cached.on[at])}`] : [];
    const off = cached.off.flatMap((shares, wait) =>
      shares[at] > 0 ? [`waiting for ${profile.header.waits[wait] ?? "unknown"} ${percent(shares[at])}`] : [],
    );
    return [`${(time / 1e6).toFixed(3)} s`, ...on, ...off].join(", ");
  }

  /**
   * What each lane that is shown does, by column.
   * @param {number} width
   */
  activity(width) {
    const { profile, lanes } = this;
    if (this.cached?.lanes === lanes && this.cached.width === width) return this.cached;
    const [laneOf, count] = this.laneOfSamples();
    const rows = new Int32Array(count).fill(-1);
    lanes.forEach(({ lane }, row) => (rows[lane] = row));
    const made = () => new Float32Array(lanes.length * width);
    const on = made();
    /** @type {Float32Array[]} */
    const off = profile.hasOff ? profile.header.waits.map(made) : [];
    const scale = width / (profile.end - profile.start || 1);
    for (let n = 0; n < profile.sampleCount; n++) {
      const row = rows[laneOf[n]];
      if (row < 0) continue;
      const begin = (profile.beginOf(n) - profile.start) * scale;
      const end = (profile.time[n] - profile.start) * scale;
      const into = profile.isOff(n) ? off[profile.waitIndex(n)] : on;
      for (let column = Math.floor(begin); into && column <= end && column < width; column++) {
        const part = Math.min(end, column + 1) - Math.max(begin, column);
        into[row * width + column] += Math.max(part, 0);
      }
    }
    return (this.cached = { lanes, width, on, off });
  }
}

/**
 * The context of an emptied canvas of a size.
 * @param {HTMLCanvasElement} canvas
 * @param {number} width
 * @param {number} height
 */
function sized(canvas, width, height) {
  const ratio = window.devicePixelRatio;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  const context = canvas.getContext("2d");
  context?.scale(ratio, ratio);
  return context;
}

/**
 * What a lane waits for longest in a column, and the share.
 * @param {Float32Array[]} off
 * @param {number} at
 * @returns {[number, number]}
 */
function longest(off, at) {
  let [wait, share] = [0, 0];
  for (let n = 0; n < off.length; n++) if (off[n][at] > share) [wait, share] = [n, off[n][at]];
  return [wait, share];
}

/**
 * A round number of seconds that is not below another: 1, 2 or 5 times a power of ten.
 * @param {number} least
 */
export function tickStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return power * ([1, 2, 5].find((factor) => factor * power >= least) ?? 10);
}
