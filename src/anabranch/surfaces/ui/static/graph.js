// The graph: moved and zoomed by its view box, coloured by classes. Nothing is laid out again.
import { lookOf, amount, still } from "./words.js";

const NS = "http://www.w3.org/2000/svg";
const LOOKS = ["plain", "active", "waiting", "done", "failed", "quiet"];
const SMALLEST = 60;
const DOTS_MAX = 24;
const DOT_MS = 650;
const FOCUSED_MAX = 60;
const CLICK_PIXELS = 4;

export function startGraph(drawer) {
  const place = document.getElementById("graph");
  const svg = place?.querySelector("svg.anb-graph");
  if (!svg) return null;
  const [, , width, height] = svg.getAttribute("viewBox").split(" ").map(Number);
  svg.removeAttribute("width");
  svg.removeAttribute("height");
  if (!place.classList.contains("small")) place.style.height = `min(64vh, ${Math.max(260, height)}px)`;
  const graph = new Graph(place, svg, new View(place, svg, width, height));
  if (place.dataset.steps && drawer) graph.opens(drawer);
  return graph;
}

class Graph {
  constructor(place, svg, view) {
    Object.assign(this, { place, view });
    this.boxes = new Map();
    this.joins = new Map();
    for (const box of svg.querySelectorAll("g.anb-box")) {
      const name = box.dataset.step;
      if (box.classList.contains("anb-join")) add(this.joins, targetOf(name), new Join(box));
      else this.boxes.set(name, new Box(box));
    }
    this.ways = new Ways(svg);
  }

  // A click on a box opens its step, and so does Enter where a box has the focus.
  opens(drawer) {
    const own = (name) => `${this.place.dataset.steps}${encodeURIComponent(name)}`;
    this.view.clicked = (box) => drawer.open(own(box.dataset.step));
    if (this.boxes.size > FOCUSED_MAX) return; // the table below has a link for each of them
    for (const [name, { box }] of this.boxes) {
      box.setAttribute("tabindex", "0");
      box.setAttribute("role", "link");
      box.setAttribute("aria-label", `Step ${name}`);
      box.addEventListener("focus", () => this.view.bringIn(box));
      box.addEventListener("keydown", (event) => {
        if (event.key !== "Enter") return;
        event.preventDefault();
        drawer.open(own(name));
      });
    }
  }

  // How it stands when the page is opened: nothing has to be seen moving for that.
  begin(told) {
    this.show(told);
    const wanted = this.boxes.get(this.place.dataset.focus);
    if (wanted) {
      wanted.box.classList.add("anb-sought");
      this.view.centre(wanted.box);
    } else if (!this.view.fits) this.view.busy();
    this.fetchWays();
  }

  // Of a run that has ended; the ways of others come with the news of it.
  async fetchWays() {
    if (!this.place.dataset.ways) return;
    const answer = await fetch(this.place.dataset.ways).catch(() => null);
    if (!answer?.ok || answer.redirected) return;
    this.showWays(await answer.json());
  }

  // Nothing is seen moving that moved before the page was there.
  showWays({ ways, moved = false }) {
    for (const [from, to, when, count] of ways) {
      if (moved) this.ways.move(from, to, when, count);
      else this.ways.take(from, to, when);
    }
  }

  show(told) {
    for (const [name, step] of Object.entries(told.steps)) this.boxes.get(name)?.show(...step);
    for (const [target, [text, look]] of Object.entries(told.joins)) {
      for (const join of this.joins.get(target) ?? []) join.show(text, look);
    }
  }
}

const add = (map, key, value) => map.set(key, [...(map.get(key) ?? []), value]);
// A join is named after its rule and its target.
const targetOf = (name) => name.slice(name.indexOf("→") + 2);

function setLook(box, look) {
  for (const one of LOOKS) box.classList.toggle(`anb-${one}`, one === look);
}

class Join {
  constructor(box) {
    this.box = box;
    this.text = box.querySelector("text");
    this.said = this.text.textContent;
  }

  show(words, look) {
    setLook(this.box, look);
    const open = words.includes("/");
    this.text.textContent = open ? `${words.split("/")[0]} in, ${this.said}` : `${this.said} ${look === "done" ? "✓" : "✗"}`;
  }
}

// The arrows: those that tokens took are drawn stronger, and a dot goes along when one is taken.
class Ways {
  constructor(svg) {
    this.svg = svg;
    this.arrows = new Map();
    this.dots = 0;
    const joins = new Set([...svg.querySelectorAll("g.anb-join")].map((box) => box.dataset.step));
    const end = (name) => (joins.has(name) ? `→ ${targetOf(name)}` : name);
    for (const arrow of svg.querySelectorAll("g.anb-arrow")) {
      const { from, to } = arrow.dataset;
      add(this.arrows, `${end(from)}\n${end(to)}`, arrow);
    }
  }

  // Of arrows with the same ends those of another outcome were not taken.
  take(from, to, when) {
    const there = this.arrows.get(`${from}\n${to}`) ?? [];
    const found = there.filter(({ dataset }) => !dataset.when || !when || dataset.when === when);
    for (const arrow of found) arrow.classList.add("anb-taken");
    return found;
  }

  move(from, to, when, count) {
    const [arrow] = this.take(from, to, when);
    if (!arrow || still() || this.dots >= DOTS_MAX) return;
    const path = arrow.querySelector("path");
    const dot = document.createElementNS(NS, "circle");
    dot.setAttribute("class", "anb-token");
    dot.setAttribute("r", count > 1 ? 6.5 : 5);
    this.svg.append(dot);
    this.dots += 1;
    const [begun, length] = [performance.now(), path.getTotalLength()];
    const step = (now) => {
      const part = Math.min(1, (now - begun) / DOT_MS);
      if (part >= 1) {
        dot.remove();
        this.dots -= 1;
        return;
      }
      const { x, y } = path.getPointAtLength(length * Math.max(0, part));
      dot.setAttribute("cx", x);
      dot.setAttribute("cy", y);
      requestAnimationFrame(step);
    };
    requestAnimationFrame(step);
  }
}

class Box {
  constructor(box) {
    this.box = box;
    this.name = box.querySelector(".anb-name");
    this.detail = box.querySelector(".anb-detail");
    this.words = this.detail?.textContent ?? "";
    this.rect = box.querySelector("rect");
    this.pills = {};
  }

  show(status, runs, here) {
    setLook(this.box, lookOf(status) === "partial" ? "waiting" : lookOf(status));
    this.box.dataset.status = status;
    this.box.dataset.tokens = here;
    if (!this.detail) this.addDetail();
    this.detail.textContent = this.words ? `${status} · ${this.words}` : status;
    this.pill("count", runs > 1 ? `×${amount(runs)}` : "", true);
    this.pill("tokens", here ? `● ${amount(here)}` : "", false);
  }

  addDetail() {
    const y = Number(this.name.getAttribute("y"));
    this.name.setAttribute("y", y - 7.5);
    this.detail = document.createElementNS(NS, "text");
    this.detail.setAttribute("class", "anb-detail");
    this.detail.setAttribute("x", this.name.getAttribute("x"));
    this.detail.setAttribute("y", y + 8.5);
    this.box.append(this.detail);
  }

  // At the upper corners: how many tokens are here, and how often the step ran.
  pill(name, text, right) {
    if (!text && !this.pills[name]) return;
    const pill = (this.pills[name] ??= this.newPill(name));
    pill.rect.toggleAttribute("hidden", !text);
    pill.text.toggleAttribute("hidden", !text);
    if (!text || pill.text.textContent === text) return;
    const width = 7 * text.length + 10;
    const left = Number(this.rect.getAttribute("x"));
    const middle = right ? left + Number(this.rect.getAttribute("width")) - width / 2 + 8 : left + width / 2 - 8;
    const top = Number(this.rect.getAttribute("y"));
    pill.rect.setAttribute("x", middle - width / 2);
    pill.rect.setAttribute("y", top - 9);
    pill.rect.setAttribute("width", width);
    pill.text.setAttribute("x", middle);
    pill.text.setAttribute("y", top + 4);
    pill.text.textContent = text;
  }

  newPill(name) {
    const rect = document.createElementNS(NS, "rect");
    rect.setAttribute("class", `anb-badge anb-${name}`);
    rect.setAttribute("height", 18);
    rect.setAttribute("rx", 9);
    const text = document.createElementNS(NS, "text");
    text.setAttribute("class", "anb-badge-text");
    this.box.append(rect, text);
    return { rect, text };
  }
}

// What part of the picture is seen. Changes are drawn once a frame, however many there are.
class View {
  constructor(place, svg, width, height) {
    Object.assign(this, { place, svg, width, height, drawing: false });
    this.natural();
    place.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    place.addEventListener("keydown", (event) => this.key(event));
    this.dragging();
    for (const button of document.querySelectorAll(".graph-tools [data-zoom]")) {
      button.addEventListener("click", () => this.tool(button.dataset.zoom));
    }
    new ResizeObserver(() => this.resized()).observe(place);
  }

  get seen() {
    const { clientWidth, clientHeight } = this.place;
    return [clientWidth || 1, clientHeight || 1];
  }

  // A small net is seen whole, a large one from its beginning at a size that can be read.
  natural() {
    const [w, h] = this.seen;
    const whole = Math.max(this.width / w, this.height / h);
    this.scale = Math.max(1, Math.min(whole, 1.6));
    const start = Number(this.svg.querySelector(".anb-start")?.getAttribute("cx") ?? this.width / 2);
    const middle = this.width / w <= 1.6 ? this.width / 2 : start;
    this.x = middle - (w * this.scale) / 2;
    this.y = this.height / h <= 1.6 ? this.height / 2 - (h * this.scale) / 2 : 0;
    this.untouched = true;
    this.draw();
  }

  resized() {
    if (this.untouched) this.natural();
    else this.draw();
  }

  draw() {
    if (this.drawing) return;
    this.drawing = true;
    requestAnimationFrame(() => {
      this.drawing = false;
      const [w, h] = this.seen;
      this.svg.setAttribute("viewBox", `${this.x} ${this.y} ${w * this.scale} ${h * this.scale}`);
    });
  }

  zoom(factor, px, py) {
    const [w, h] = this.seen;
    const largest = 1.2 * Math.max(this.width / w, this.height / h, 1);
    const next = Math.min(Math.max(this.scale * factor, SMALLEST / w), largest);
    const [fx, fy] = [px ?? w / 2, py ?? h / 2];
    this.x += fx * (this.scale - next);
    this.y += fy * (this.scale - next);
    this.scale = next;
    this.untouched = false;
    this.draw();
  }

  move(dx, dy) {
    this.x += dx * this.scale;
    this.y += dy * this.scale;
    this.untouched = false;
    this.draw();
  }

  whole() {
    const [w, h] = this.seen;
    this.scale = Math.max(this.width / w, this.height / h, 1);
    this.x = this.width / 2 - (w * this.scale) / 2;
    this.y = this.height / 2 - (h * this.scale) / 2;
    this.untouched = false;
    this.draw();
  }

  tool(what) {
    if (what === "in") this.zoom(1 / 1.4);
    else if (what === "out") this.zoom(1.4);
    else if (what === "fit") this.whole();
    else if (what === "real") this.zoom(1 / this.scale);
    else if (what === "busy") this.busy();
  }

  // Where something is at work, or failed, or went last.
  busy() {
    const found = ["anb-active", "anb-waiting", "anb-failed", "anb-done"]
      .map((look) => [...this.svg.querySelectorAll(`g.anb-box.${look}`)].pop())
      .find(Boolean);
    if (found) this.centre(found);
  }

  get fits() {
    const [w, h] = this.seen;
    return this.width / w <= 1.6 && this.height / h <= 1.6;
  }

  // What the keyboard has reached is in sight.
  bringIn(box) {
    const [seen, place] = [box.getBoundingClientRect(), this.place.getBoundingClientRect()];
    const outside = seen.left < place.left || seen.right > place.right || seen.top < place.top || seen.bottom > place.bottom;
    if (outside) this.centre(box);
  }

  centre(box) {
    const rect = box.querySelector("rect");
    const [w, h] = this.seen;
    this.scale = 1;
    this.x = Number(rect.getAttribute("x")) + Number(rect.getAttribute("width")) / 2 - w / 2;
    this.y = Number(rect.getAttribute("y")) + Number(rect.getAttribute("height")) / 2 - h / 2;
    this.untouched = false;
    this.draw();
  }

  // Zooms only with the control key or a pinch: a page that is scrolled past stays a page.
  wheel(event) {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const box = this.place.getBoundingClientRect();
    this.zoom(Math.exp(event.deltaY / 300), event.clientX - box.left, event.clientY - box.top);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const moves = { ArrowLeft: [-60, 0], ArrowRight: [60, 0], ArrowUp: [0, -60], ArrowDown: [0, 60] };
    if (moves[event.key]) this.move(...moves[event.key]);
    else if (event.key === "+" || event.key === "=") this.zoom(1 / 1.4);
    else if (event.key === "-") this.zoom(1.4);
    else if (event.key === "0") this.whole();
    else return;
    event.preventDefault();
  }

  dragging() {
    const pointers = new Map();
    let apart = 0;
    let moved = 0;
    const distance = () => {
      const [a, b] = [...pointers.values()];
      return Math.hypot(a.x - b.x, a.y - b.y);
    };
    this.place.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      pointers.set(event.pointerId, { x: event.clientX, y: event.clientY });
      this.place.setPointerCapture(event.pointerId);
      moved = pointers.size > 1 ? CLICK_PIXELS : 0;
      if (pointers.size === 2) apart = distance();
    });
    this.place.addEventListener("pointermove", (event) => {
      const before = pointers.get(event.pointerId);
      if (!before) return;
      pointers.set(event.pointerId, { x: event.clientX, y: event.clientY });
      if (pointers.size === 2) {
        const now = distance();
        const box = this.place.getBoundingClientRect();
        this.zoom(apart / now, event.clientX - box.left, event.clientY - box.top);
        apart = now;
      } else {
        moved += Math.abs(before.x - event.clientX) + Math.abs(before.y - event.clientY);
        this.move(before.x - event.clientX, before.y - event.clientY);
      }
    });
    for (const end of ["pointerup", "pointercancel"]) {
      this.place.addEventListener(end, (event) => {
        const pressed = pointers.delete(event.pointerId);
        if (pressed && end === "pointerup" && moved < CLICK_PIXELS) this.click(event);
      });
    }
  }

  // The pointer is captured while it is down, so the box below it has to be looked for.
  click(event) {
    const below = document.elementFromPoint(event.clientX, event.clientY);
    const box = below?.closest("g.anb-box:not(.anb-join)");
    if (box && this.svg.contains(box)) this.clicked?.(box);
  }
}
