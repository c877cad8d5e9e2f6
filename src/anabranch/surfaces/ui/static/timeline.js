// The timeline: one lane for each step run, drawn from what the server counted. Only lanes that are
// in sight are drawn, and names stay where they are when time is moved.
import { span } from "./words.js";

const NS = "http://www.w3.org/2000/svg";
const LANE = 24;
const HEAD = 26;
const SMALLEST_MS = 5;

export function startTimeline() {
  const place = document.getElementById("timeline");
  if (!place) return null;
  const timeline = new Timeline(place);
  timeline.load();
  return timeline;
}

class Timeline {
  constructor(place) {
    this.place = place;
    this.data = null;
    this.zoom = 1; // 1 is all of it
    this.left = 0; // the part of the whole that is to the left of what is seen
    this.asked = 0;
    this.svg = document.createElementNS(NS, "svg");
    this.svg.setAttribute("role", "img");
    this.svg.setAttribute("aria-label", "Timeline of step runs; the table below has the same");
    this.inner = document.createElement("div");
    this.inner.className = "timeline-inner";
    this.inner.append(this.svg);
    place.append(this.inner);
    place.addEventListener("scroll", () => this.draw());
    place.addEventListener("keydown", (event) => this.key(event));
    place.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    this.drag();
    for (const button of document.querySelectorAll(".graph-tools [data-zoom]")) {
      button.addEventListener("click", () => this.tool(button.dataset.zoom));
    }
    new ResizeObserver(() => this.draw()).observe(place);
  }

  async load() {
    this.asked = performance.now();
    const answer = await fetch(this.place.dataset.source);
    if (!answer.ok) return;
    this.data = await answer.json();
    this.draw();
  }

  // Not more often than once a second; the end is never missed.
  refresh(finished) {
    if (this.waiting) return;
    const since = performance.now() - this.asked;
    this.waiting = setTimeout(() => {
      this.waiting = null;
      this.load();
    }, finished ? 0 : Math.max(0, 1000 - since));
  }

  get names() {
    return Math.min(200, Math.max(90, this.place.clientWidth * 0.22));
  }

  range() {
    const { lanes, started, ended, now } = this.data;
    const start = lanes.length ? Math.min(...lanes.map((lane) => lane.start)) : started;
    const ends = lanes.map((lane) => lane.end || ended || now);
    const end = Math.max(start + SMALLEST_MS, ...ends);
    const whole = end - start;
    const seen = whole / this.zoom;
    this.left = Math.min(Math.max(0, this.left), 1 - 1 / this.zoom);
    return { from: start + this.left * whole, seen, end };
  }

  draw() {
    if (!this.data || this.drawing) return;
    this.drawing = true;
    requestAnimationFrame(() => {
      this.drawing = false;
      this.paint();
    });
  }

  paint() {
    const { lanes, now, ended } = this.data;
    const width = this.place.clientWidth;
    const names = this.names;
    const { from, seen } = this.range();
    const room = width - names - 12;
    const x = (at) => names + ((at - from) / seen) * room;
    const height = HEAD + lanes.length * LANE + 6;
    this.inner.style.height = `${height}px`;
    const top = this.place.scrollTop;
    const tall = this.place.clientHeight;
    this.svg.setAttribute("width", width);
    this.svg.setAttribute("height", Math.min(tall, height));
    const parts = [];
    const firstLane = Math.max(0, Math.floor((top - HEAD) / LANE));
    const lastLane = Math.min(lanes.length, Math.ceil((top + tall) / LANE));
    for (let index = firstLane; index < lastLane; index += 1) {
      const lane = lanes[index];
      const y = HEAD + index * LANE - top;
      if (index % 2) parts.push(rect("stripe", 0, y, width, LANE));
      const lifeEnd = lane.end || ended || now;
      parts.push(...clipped(names, width, x(lane.start), x(lifeEnd), (a, w) => rect("life", a, y + 10, w, 4)));
      for (const [kind, start, end, note, good] of lane.segments) {
        const until = end || lane.end || ended || now;
        const look = good ? kind : "bad";
        parts.push(...clipped(names, width, x(start), x(until), (a, w) =>
          titled(rect(`seg seg-${look}`, a, y + 5, w, LANE - 10, 3),
            `${lane.label}: ${kind}${note ? `, ${note}` : ""} (${span(until - start)})`)));
      }
      parts.push(label(lane, y, names));
    }
    parts.push(...axis(names, room, width, from, seen, this.data));
    this.svg.replaceChildren(...parts);
  }

  tool(what) {
    if (what === "in") this.scale(1.6);
    else if (what === "out") this.scale(1 / 1.6);
    else {
      this.zoom = 1;
      this.left = 0;
      this.draw();
    }
  }

  scale(factor, at = 0.5) {
    const before = 1 / this.zoom;
    this.zoom = Math.min(Math.max(1, this.zoom * factor), 10_000);
    this.left += at * (before - 1 / this.zoom);
    this.draw();
  }

  move(part) {
    this.left += part / this.zoom;
    this.draw();
  }

  wheel(event) {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const box = this.place.getBoundingClientRect();
    const at = (event.clientX - box.left - this.names) / (box.width - this.names);
    this.scale(Math.exp(-event.deltaY / 300), Math.min(Math.max(at, 0), 1));
  }

  key(event) {
    if (event.key === "ArrowLeft") this.move(-0.15);
    else if (event.key === "ArrowRight") this.move(0.15);
    else if (event.key === "+" || event.key === "=") this.scale(1.6);
    else if (event.key === "-") this.scale(1 / 1.6);
    else if (event.key === "0") this.tool("fit");
    else return;
    event.preventDefault();
  }

  drag() {
    let from = null;
    this.place.addEventListener("pointerdown", (event) => {
      if (event.button || event.pointerType === "touch") return;
      from = event.clientX;
      this.place.setPointerCapture(event.pointerId);
    });
    this.place.addEventListener("pointermove", (event) => {
      if (from === null) return;
      this.move((from - event.clientX) / (this.place.clientWidth - this.names));
      from = event.clientX;
    });
    for (const end of ["pointerup", "pointercancel"]) this.place.addEventListener(end, () => { from = null; });
  }
}

function element(name, attributes) {
  const made = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

const rect = (look, x, y, width, height, rx = 0) => element("rect", { class: look, x, y, width, height, rx });

// Only what can be seen, and never so thin that it vanishes.
function clipped(left, right, from, to, make) {
  const a = Math.max(left, Math.min(from, to));
  const b = Math.min(right, Math.max(to, from + 2));
  return b > a ? [make(a, b - a)] : [];
}

function titled(made, text) {
  const title = document.createElementNS(NS, "title");
  title.textContent = text;
  made.append(title);
  return made;
}

function label(lane, y, names) {
  const text = element("text", { class: `lane-name lane-${lane.status}`, x: 8, y: y + 16 });
  const room = Math.floor((names - 14) / 6.9);
  text.textContent = lane.label.length > room ? `${lane.label.slice(0, room - 1)}…` : lane.label;
  return titled(text, `${lane.label}: ${lane.status}${lane.attempts > 1 ? `, ${lane.attempts} tries` : ""}`);
}

const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 15e3, 3e4, 6e4, 12e4, 3e5, 6e5, 9e5, 18e5, 36e5,
  72e5, 216e5, 432e5, 864e5, 1728e5, 6048e5, 2592e6, 7776e6, 31536e6];

// Marks at round distances from the beginning of the run.
function* axis(names, room, width, from, seen, { started }) {
  yield rect("axis", 0, 0, width, HEAD - 3);
  const step = STEPS.find((one) => one * (room / seen) >= 90) ?? STEPS.at(-1);
  for (let at = Math.ceil((from - started) / step) * step; at <= from - started + seen; at += step) {
    const x = names + ((at + started - from) / seen) * room;
    yield element("line", { class: "axis-line", x1: x, x2: x, y1: 0, y2: 10_000 });
    const text = element("text", { class: "axis-text", x: x + 4, y: 15 });
    text.textContent = at < 0 ? `−${span(-at)}` : at === 0 ? "0" : span(at);
    if (x + 60 < width) yield text;
  }
}
