// The time line: a lane for each thread or processor, with the time on and off a CPU.

import { Profile } from "./profile.mjs";

/** @typedef {import("./state.mjs").State} State */

const HEIGHT = 22;
/** The most lanes shown at first. */
const FEW = 6;

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
    /** @type {{id: number, button: HTMLButtonElement, canvas: HTMLCanvasElement}[]} */
    this.lanes = [];
    /** @type {{lane: Int32Array, width: number, on: Float64Array, off: Float64Array} | null} */
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
    const count = isByCpu ? profile.cpuCount : profile.header.threads.length;
    const lane = isByCpu ? profile.cpu : profile.thread;
    const weights = new Float64Array(count);
    for (let n = 0; n < profile.sampleCount; n++) {
      if (!profile.isOff(n) || !profile.hasOn) weights[lane[n]] += profile.weight[n];
    }
    const order = Array.from(weights.keys()).sort((a, b) => weights[b] - weights[a]);
    const shown = this.showsAll ? order : order.slice(0, FEW);
    this.parent.replaceChildren();
    this.lanes = shown.map((id) => {
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
      return { id, button, canvas };
    });
    if (order.length > shown.length) {
      const more = document.createElement("button");
      more.type = "button";
      more.textContent = `Show all ${order.length}`;
      more.addEventListener("click", () => {
        this.showsAll = true;
        this.build();
        this.draw();
      });
      this.parent.append(more);
    }
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
    const isByCpu = state.lanes === "cpus";
    const activity = this.activity(isByCpu ? profile.cpu : profile.thread, width);
    const length = profile.end - profile.start || 1;
    const [a, b] = dragged ?? [state.from ?? profile.start, state.to ?? profile.end];
    const [from, to] = [Math.min(a, b), Math.max(a, b)];
    const x = (/** @type {number} */ time) => ((time - profile.start) / length) * width;
    const ratio = window.devicePixelRatio;
    for (const { id, button, canvas } of this.lanes) {
      button.setAttribute("aria-pressed", String(state[state.lanes].includes(id)));
      canvas.width = width * ratio;
      canvas.height = HEIGHT * ratio;
      const context = canvas.getContext("2d");
      if (!context) continue;
      const style = getComputedStyle(canvas);
      context.scale(ratio, ratio);
      for (let n = 0; n < width; n++) {
        const on = Math.min(activity.on[id * width + n] , 1) * (HEIGHT - 4);
        const off = Math.min(activity.off[id * width + n], 1);
        context.fillStyle = style.getPropertyValue("--off");
        if (off > 0) context.fillRect(n, HEIGHT - 3, 1, 3 * off);
        context.fillStyle = style.getPropertyValue("--on");
        if (on > 0) context.fillRect(n, HEIGHT - 4 - on, 1, on);
      }
      context.fillStyle = style.getPropertyValue("--veil");
      context.fillRect(0, 0, x(from), HEIGHT);
      context.fillRect(x(to), 0, width - x(to), HEIGHT);
    }
  }

  /**
   * The weight on and off a CPU of each lane, by column, as a share of the column's time.
   * @param {Int32Array} lane
   * @param {number} width
   */
  activity(lane, width) {
    const { profile } = this;
    if (this.cached?.lane === lane && this.cached.width === width) return this.cached;
    const count = Math.max(profile.cpuCount, profile.header.threads.length);
    const on = new Float64Array(count * width);
    const off = new Float64Array(count * width);
    const scale = width / (profile.end - profile.start || 1);
    for (let n = 0; n < profile.sampleCount; n++) {
      const begin = (profile.beginOf(n) - profile.start) * scale;
      const end = (profile.time[n] - profile.start) * scale;
      const into = profile.isOff(n) ? off : on;
      for (let column = Math.floor(begin); column <= end && column < width; column++) {
        const part = Math.min(end, column + 1) - Math.max(begin, column);
        into[lane[n] * width + column] += Math.max(part, 0);
      }
    }
    return (this.cached = { lane, width, on, off });
  }
}
