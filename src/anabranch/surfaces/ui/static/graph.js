// The graph: moved and zoomed by its view box, coloured by classes. Nothing is laid out again.
import { lookOf, amount } from "./words.js";

const NS = "http://www.w3.org/2000/svg";
const LOOKS = ["plain", "active", "waiting", "done", "failed", "quiet"];
const SMALLEST = 60;

export function startGraph() {
  const place = document.getElementById("graph");
  const svg = place?.querySelector("svg.anb-graph");
  if (!svg) return null;
  const [, , width, height] = svg.getAttribute("viewBox").split(" ").map(Number);
  svg.removeAttribute("width");
  svg.removeAttribute("height");
  if (!place.classList.contains("small")) place.style.height = `min(64vh, ${Math.max(260, height)}px)`;
  const view = new View(place, svg, width, height);
  const boxes = new Map();
  const joins = new Map();
  for (const box of svg.querySelectorAll("g.anb-box")) {
    const name = box.dataset.step;
    if (box.classList.contains("anb-join")) {
      const target = name.slice(name.indexOf("→") + 2);
      joins.set(target, [...(joins.get(target) ?? []), { box, text: box.querySelector("text"), said: box.querySelector("text").textContent }]);
    } else boxes.set(name, new Box(box));
  }
  return {
    apply(told) {
      for (const [name, [status, runs]] of Object.entries(told.steps)) boxes.get(name)?.show(status, runs);
      for (const [target, [text, look]] of Object.entries(told.joins)) {
        for (const join of joins.get(target) ?? []) showJoin(join, text, look);
      }
    },
    view,
  };
}

function setLook(box, look) {
  for (const one of LOOKS) box.classList.toggle(`anb-${one}`, one === look);
}

function showJoin({ box, text, said }, words, look) {
  setLook(box, look);
  text.textContent = words.includes("/") ? `${words.split("/")[0]} in, ${said}` : `${said} ${look === "done" ? "✓" : "✗"}`;
}

class Box {
  constructor(box) {
    this.box = box;
    this.name = box.querySelector(".anb-name");
    this.detail = box.querySelector(".anb-detail");
    this.words = this.detail?.textContent ?? "";
    this.rect = box.querySelector("rect");
    this.badge = null;
  }

  show(status, runs) {
    setLook(this.box, lookOf(status) === "partial" ? "waiting" : lookOf(status));
    this.box.dataset.status = status;
    if (!this.detail) this.addDetail();
    this.detail.textContent = this.words ? `${status} · ${this.words}` : status;
    if (runs > 1) this.count(runs);
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

  count(runs) {
    const text = `×${amount(runs)}`;
    const width = 7 * text.length + 10;
    const right = Number(this.rect.getAttribute("x")) + Number(this.rect.getAttribute("width"));
    const top = Number(this.rect.getAttribute("y"));
    if (!this.badge) {
      this.badge = document.createElementNS(NS, "rect");
      this.badge.setAttribute("class", "anb-badge");
      this.badge.setAttribute("height", 18);
      this.badge.setAttribute("rx", 9);
      this.badgeText = document.createElementNS(NS, "text");
      this.badgeText.setAttribute("class", "anb-badge-text");
      this.box.append(this.badge, this.badgeText);
    }
    if (this.badgeText.textContent === text) return;
    this.badge.setAttribute("x", right - width + 8);
    this.badge.setAttribute("y", top - 9);
    this.badge.setAttribute("width", width);
    this.badgeText.setAttribute("x", right - width / 2 + 8);
    this.badgeText.setAttribute("y", top + 4);
    this.badgeText.textContent = text;
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
    if (!found) return;
    const rect = found.querySelector("rect");
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
    const distance = () => {
      const [a, b] = [...pointers.values()];
      return Math.hypot(a.x - b.x, a.y - b.y);
    };
    this.place.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      pointers.set(event.pointerId, { x: event.clientX, y: event.clientY });
      this.place.setPointerCapture(event.pointerId);
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
      } else this.move(before.x - event.clientX, before.y - event.clientY);
    });
    for (const end of ["pointerup", "pointercancel"]) {
      this.place.addEventListener(end, (event) => pointers.delete(event.pointerId));
    }
  }
}
