// The timeline: one lane for each step run, drawn from what the server counted. Only lanes that are
// in sight are drawn, and names stay where they are when time is moved. Time is scaled to the work:
// where nothing is at work for long, the time between is folded.
import { foldedScale, plainScale } from "./timescale.js";
import { exactly, span } from "./words.js";

const NS = "http://www.w3.org/2000/svg";
const LANE = 24;
const HEAD = 26;
const CLICK_PIXELS = 4;
const LOOPS_SHOWN = 10;
const NAMES_NARROW = 150; // pixels for names in which shards say only their numbers
const WORDS = {
  queued: "queued", running: "at work", retry: "before a retry", waiting: "waiting", deciding: "decision",
  sleeping: "asleep", parked: "answer from outside", loop: "loop",
};

export function startTimeline(drawer) {
  const place = document.getElementById("timeline");
  if (!place) return null;
  const timeline = new Timeline(place);
  timeline.drawer = drawer;
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
    this.picked = -1;
    this.folds = true;
    this.shows = { shards: false };
    this.shards = new Map(); // loop → what the server said of its shards
    this.said = document.getElementById("picked");
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
    // Not `pointerover`: that also comes when a bar is drawn anew below a mouse that rests.
    place.addEventListener("pointermove", (event) => this.point(event.target));
    this.drag();
    for (const button of document.querySelectorAll(".graph-tools [data-zoom]")) {
      button.addEventListener("click", () => this.tool(button.dataset.zoom));
    }
    this.toggle("fold-waiting", this.folds, (on) => { this.folds = on; });
    this.toggle("show-shards", false, (on) => {
      this.shows.shards = on;
      if (on) this.loadShards();
    });
    new ResizeObserver(() => this.draw()).observe(place);
    setInterval(() => this.grow(), 1000);
  }

  // A button that is pressed or not.
  toggle(id, on, change) {
    const button = document.getElementById(id);
    button?.addEventListener("click", () => {
      const now = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", String(now));
      change(now);
      this.zoom = 1;
      this.left = 0;
      this.arrange();
    });
    button?.setAttribute("aria-pressed", String(on));
  }

  async load() {
    this.asked = performance.now();
    const answer = await fetch(this.place.dataset.source).catch(() => null);
    if (!answer?.ok || answer.redirected) return;
    this.data = await answer.json();
    this.got = performance.now();
    this.critical = new Set(this.data.path);
    const shards = document.getElementById("show-shards");
    if (shards) shards.hidden = !this.data.lanes.some((lane) => lane.loop);
    const path = document.getElementById("critical-path");
    if (path) {
      path.hidden = this.data.path.length < 2;
      path.querySelector("span").textContent = this.data.path_words;
    }
    if (this.shows.shards) await this.loadShards();
    this.arrange();
  }

  // Of the last loops; each says how many shards it has when they are too many.
  async loadShards() {
    const loops = this.data.lanes.filter((lane) => lane.loop).slice(-LOOPS_SHOWN);
    for (const lane of loops) {
      const answer = await fetch(`${this.place.dataset.shards}${encodeURIComponent(lane.loop)}`).catch(() => null);
      if (answer?.ok && !answer.redirected) this.shards.set(lane.loop, await answer.json());
    }
    this.arrange();
  }

  // The rows: lanes, and below a loop its shards.
  arrange() {
    if (!this.data) return;
    this.rows = this.data.lanes.flatMap((lane) => {
      const found = this.shows.shards && lane.loop ? this.shards.get(lane.loop) : null;
      if (!found) return [lane];
      const shards = found.lanes.map((one) => ({ ...one, way: lane.way, shard: true }));
      if (found.more && shards.length) shards.push({ ...shards.at(-1), label: "and more", segments: [], words: "more shards are on the page of the loop", shard: true });
      return [lane, ...shards];
    });
    this.place.style.height = `min(64vh, ${HEAD + Math.max(2, this.rows.length) * LANE + 12}px)`;
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

  // What is under way gets longer also when nothing happens.
  grow() {
    if (this.data && !this.data.finished && this.data.lanes.some((lane) => !lane.end)) this.draw();
  }

  // By the clock of the server.
  get now() {
    return this.data.ended || this.data.now + (performance.now() - this.got);
  }

  get names() {
    return Math.min(220, Math.max(this.shows.shards ? 112 : 90, this.place.clientWidth * 0.22));
  }

  // From instants to parts of the drawing, and what of it is seen.
  range() {
    const scale = (this.folds ? foldedScale : plainScale)(this.data.lanes, this.data.started, this.now);
    const seen = scale.length / this.zoom;
    this.left = Math.min(Math.max(0, this.left), 1 - 1 / this.zoom);
    return { scale, from: this.left * scale.length, seen };
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
    const rows = this.rows ?? this.data.lanes;
    const width = this.place.clientWidth;
    const names = this.names;
    const { scale, from, seen } = this.range();
    const room = width - names - 12;
    const x = (at) => names + ((scale.of(at) - from) / seen) * room;
    const height = HEAD + rows.length * LANE + 6;
    this.inner.style.height = `${height}px`;
    const top = this.place.scrollTop;
    const tall = this.place.clientHeight;
    this.svg.setAttribute("width", width);
    this.svg.setAttribute("height", Math.min(tall, height));
    const [head, lines] = axis({ names, room, width, seen, scale, x }, this.data);
    const parts = [hatching(), ...lines];
    const firstLane = Math.max(0, Math.floor((top - HEAD) / LANE));
    const lastLane = Math.min(rows.length, Math.ceil((top + tall) / LANE));
    for (let index = firstLane; index < lastLane; index += 1) {
      parts.push(...this.lane(index, HEAD + index * LANE - top, { names, width, x }));
    }
    this.svg.replaceChildren(...parts, ...folds(scale, names, width, x, Math.min(tall, height)), ...head);
  }

  lane(index, y, { names, width, x }) {
    const lane = (this.rows ?? this.data.lanes)[index];
    const critical = !lane.shard && this.critical?.has(lane.id);
    const parts = [];
    if (index === this.picked) parts.push(rect("picked-lane", 0, y, width, LANE));
    else if (index % 2) parts.push(rect("stripe", 0, y, width, LANE));
    parts.push(...clipped(names, width, x(lane.start), x(lane.end || this.now), (a, w) => [rect(critical ? "life critical" : "life", a, y + (critical ? 20 : 11), w, critical ? 3 : 2)]));
    // What failed is painted last: at the scale of hours a try of a second must not vanish.
    const segments = [...lane.segments].sort((a, b) => Number(b[4]) - Number(a[4]));
    for (const [kind, start, end, note, good] of segments) {
      const until = end || lane.end || this.now;
      const words = `${lane.label}: ${WORDS[kind]}${good ? "" : ", failed"}${note ? `, ${note}` : ""} (${span(until - start)})`;
      parts.push(...clipped(names, width, x(start), x(until), (a, w) => bar(good ? kind : "bad", a, y, w, words), good ? 2 : 5));
    }
    parts.push(label(lane, y, names));
    return parts;
  }

  // What is pointed at, or picked by the keyboard, is told in words below.
  point(target) {
    const words = target.closest("[data-words]")?.dataset.words;
    if (words && this.said && this.said.textContent !== words) this.said.textContent = words;
  }

  pick(index) {
    const lanes = this.rows ?? [];
    if (!lanes.length) return;
    this.picked = Math.min(Math.max(0, index), lanes.length - 1);
    const y = HEAD + this.picked * LANE;
    if (y - HEAD < this.place.scrollTop) this.place.scrollTop = y - HEAD;
    else if (y + LANE > this.place.scrollTop + this.place.clientHeight) this.place.scrollTop = y + LANE - this.place.clientHeight;
    const lane = lanes[this.picked];
    if (this.said) this.said.textContent = `${told(lane)}. ${lane.words}`;
    this.draw();
  }

  // The step run of a lane, beside the timeline.
  open(index) {
    const lane = this.rows?.[index];
    if (lane) this.drawer?.open(lane.way);
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
    else if (event.key === "ArrowDown") this.pick(this.picked + 1);
    else if (event.key === "ArrowUp") this.pick(this.picked < 0 ? 0 : this.picked - 1);
    else if (event.key === "Home") this.pick(0);
    else if (event.key === "End") this.pick(Infinity);
    else if (event.key === "+" || event.key === "=") this.scale(1.6);
    else if (event.key === "-") this.scale(1 / 1.6);
    else if (event.key === "0") this.tool("fit");
    else if (event.key === "Enter" && this.picked >= 0) this.open(this.picked);
    else return;
    event.preventDefault();
  }

  drag() {
    let from = null;
    let moved = 0;
    this.place.addEventListener("pointerdown", (event) => {
      moved = 0;
      if (event.button || event.pointerType === "touch") return;
      from = event.clientX;
      this.place.setPointerCapture(event.pointerId);
    });
    this.place.addEventListener("pointermove", (event) => {
      if (from === null) return;
      moved += Math.abs(from - event.clientX);
      this.move((from - event.clientX) / (this.place.clientWidth - this.names));
      from = event.clientX;
    });
    for (const end of ["pointerup", "pointercancel"]) this.place.addEventListener(end, () => { from = null; });
    this.place.addEventListener("click", (event) => {
      const y = event.clientY - this.place.getBoundingClientRect().top + this.place.scrollTop - HEAD;
      if (moved < CLICK_PIXELS && y >= 0) this.open(Math.floor(y / LANE));
    });
  }
}

function element(name, attributes) {
  const made = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

const rect = (look, x, y, width, height, rx = 0) => element("rect", { class: look, x, y, width, height, rx });

// Only what can be seen, and never so thin that it vanishes.
function clipped(left, right, from, to, make, least = 2) {
  const a = Math.max(left, Math.min(from, to));
  const b = Math.min(right, Math.max(to, from + least));
  return b > a ? make(a, b - a) : [];
}

// Each kind has its height and its pattern, not only its colour.
function bar(look, x, y, width, words) {
  const low = look === "queued" || look === "sleeping";
  const made = rect(`seg seg-${look}`, x, y + (low ? 8 : 5), width, low ? LANE - 16 : LANE - 10, 3);
  made.dataset.words = words;
  if (look !== "bad" || width < 12) return [titled(made, words)];
  const [cx, cy] = [x + width / 2, y + LANE / 2];
  const cross = element("path", { class: "cross", d: `M${cx - 3} ${cy - 3}l6 6m0-6l-6 6` });
  return [titled(made, words), cross];
}

function hatching() {
  const pattern = element("pattern", { id: "hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" });
  pattern.append(element("rect", { class: "hatch-under", width: 6, height: 6 }), element("rect", { class: "hatch-over", width: 3, height: 6 }));
  const defs = element("defs", {});
  defs.append(pattern);
  return defs;
}

function titled(made, text) {
  const title = document.createElementNS(NS, "title");
  title.textContent = text;
  made.append(title);
  return made;
}

const told = (lane) => `${lane.label}: ${lane.status}${lane.attempts > 1 ? `, ${lane.attempts} tries` : ""}`;

function label(lane, y, names) {
  const narrow = names < NAMES_NARROW;
  const indent = lane.shard ? (narrow ? 14 : 22) : 8;
  const text = element("text", { class: `lane-name lane-${lane.status}${lane.shard ? " lane-shard" : ""}`, x: indent, y: y + 16 });
  const mark = { failed: "✗ ", aborted: "✗ " }[lane.status] ?? "";
  const room = Math.floor((names - indent - 6) / 6.9);
  const name = mark + (lane.shard && narrow ? lane.label.replace(/^items? (\S+) to /, "$1–") : lane.label);
  text.textContent = name.length > room ? `${name.slice(0, room - 1)}…` : name;
  text.dataset.words = `${told(lane)}. ${lane.words}`;
  return titled(text, text.dataset.words);
}

const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 15e3, 3e4, 6e4, 12e4, 3e5, 6e5, 9e5, 18e5, 36e5,
  72e5, 216e5, 432e5, 864e5, 1728e5, 6048e5, 2592e6, 7776e6, 31536e6];

// Marks at round distances from the beginning of the run: the head above the lanes, and the lines
// behind them. Where time is folded there is none.
function axis({ names, room, width, seen, scale, x }, { started }) {
  const head = [rect("axis", 0, 0, width, HEAD - 3)];
  const lines = [];
  const step = STEPS.find((one) => one * (room / seen) >= 90) ?? STEPS.at(-1);
  let free = -Infinity; // where the last text ends
  for (const piece of scale.pieces) {
    if (piece.folded) continue;
    const marks = [];
    for (let at = Math.ceil((piece.start - started) / step) * step; at <= piece.end - started; at += step) marks.push(at);
    if (!marks.length && piece !== scale.pieces[0]) marks.push(piece.start - started); // says where it goes on
    for (const at of marks.slice(0, MARKS_MAX)) {
      const left = x(at + started);
      if (left < names - 1 || left > width) continue;
      lines.push(element("line", { class: "axis-line", x1: left, x2: left, y1: 0, y2: 10_000 }));
      if (left < free || left + 60 > width) continue;
      const text = element("text", { class: "axis-text", x: left + 4, y: 15 });
      text.textContent = at < 0 ? `−${span(-at)}` : at === 0 ? "0" : marked(at, step);
      head.push(titled(text, exactly(new Date(at + started))));
      free = left + 64;
    }
  }
  return [head, lines];
}

const MARKS_MAX = 200;

// As exact as the marks are near to each other: far from the beginning spans would look alike.
function marked(at, step) {
  if (at < 1000 || step >= 1000) return span(at);
  const digits = step >= 100 ? 1 : step >= 10 ? 2 : 3;
  const whole = Math.floor(at / 60_000) * 60_000;
  const seconds = `${((at - whole) / 1000).toFixed(digits)} s`;
  return whole ? `${span(whole)} ${seconds}` : seconds;
}

// Time in which nothing was at work, drawn as a narrow band that says how long it was.
function folds(scale, names, width, x, height) {
  return scale.pieces.filter((piece) => piece.folded).flatMap((piece) => clipped(names, width, x(piece.start), x(piece.end), (a, w) => {
    const words = `nothing at work for ${span(piece.end - piece.start)}: folded`;
    const band = rect("fold", a, HEAD - 3, w, height);
    band.dataset.words = words;
    const text = element("text", { class: "fold-text", x: a + w / 2, y: height - 8, "text-anchor": "middle" });
    text.textContent = span(piece.end - piece.start);
    return w < 30 ? [titled(band, words)] : [titled(band, words), text];
  }));
}
