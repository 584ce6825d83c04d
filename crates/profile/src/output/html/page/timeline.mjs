// The time line: a lane for each thread or processor, with the time on and off a CPU.

import { Profile } from "./profile.mjs";

/** @typedef {import("./state.mjs").State} State */

const LANE_HEIGHT_PX = 22;
const MAX_LANES_AT_FIRST = 6;
/** A profile of others may have any number. */
const MAX_LANES = 500;

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
    /** @type {{lanes: Timeline["lanes"], width: number, on: Float64Array, off: Float64Array} | null} */
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
    const ratio = window.devicePixelRatio;
    const style = getComputedStyle(this.parent);
    const [onColour, offColour, veil] = ["--on", "--off", "--veil"].map((name) => style.getPropertyValue(name));
    for (const [row, { id, button, canvas }] of this.lanes.entries()) {
      button.setAttribute("aria-pressed", String(state[state.lanes].includes(id)));
      canvas.width = width * ratio;
      canvas.height = LANE_HEIGHT_PX * ratio;
      const context = canvas.getContext("2d");
      if (!context) continue;
      context.scale(ratio, ratio);
      context.fillStyle = offColour;
      for (let n = 0; n < width; n++) {
        const off = Math.min(activity.off[row * width + n], 1);
        if (off > 0) context.fillRect(n, LANE_HEIGHT_PX - 3, 1, 3 * off);
      }
      context.fillStyle = onColour;
      for (let n = 0; n < width; n++) {
        const on = Math.min(activity.on[row * width + n], 1) * (LANE_HEIGHT_PX - 4);
        if (on > 0) context.fillRect(n, LANE_HEIGHT_PX - 4 - on, 1, on);
      }
      context.fillStyle = veil;
      context.fillRect(0, 0, x(from), LANE_HEIGHT_PX);
      context.fillRect(x(to), 0, width - x(to), LANE_HEIGHT_PX);
    }
  }

  /**
   * The weight on and off a CPU of each lane that is shown, by column, as a share of the column's time.
   * @param {number} width
   */
  activity(width) {
    const { profile, lanes } = this;
    if (this.cached?.lanes === lanes && this.cached.width === width) return this.cached;
    const [laneOf, count] = this.laneOfSamples();
    const rows = new Int32Array(count).fill(-1);
    lanes.forEach(({ lane }, row) => (rows[lane] = row));
    const on = new Float64Array(lanes.length * width);
    const off = new Float64Array(lanes.length * width);
    const scale = width / (profile.end - profile.start || 1);
    for (let n = 0; n < profile.sampleCount; n++) {
      const row = rows[laneOf[n]];
      if (row < 0) continue;
      const begin = (profile.beginOf(n) - profile.start) * scale;
      const end = (profile.time[n] - profile.start) * scale;
      const into = profile.isOff(n) ? off : on;
      for (let column = Math.floor(begin); column <= end && column < width; column++) {
        const part = Math.min(end, column + 1) - Math.max(begin, column);
        into[row * width + column] += Math.max(part, 0);
      }
    }
    return (this.cached = { lanes, width, on, off });
  }
}
