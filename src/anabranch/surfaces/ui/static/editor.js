// The editor of definitions: the text is checked while it is typed, problems stand at their lines,
// and the graph and the form follow the text.
import { startGraph } from "./graph.js";
import { Marks } from "./marks.js";
import { say } from "./words.js";

const REST = 350;
const SAY_AFTER = 900;

export function startEditor() {
  const form = document.getElementById("definition");
  if (form) new Editor(form).start();
}

class Editor {
  constructor(form) {
    this.form = form;
    this.text = document.getElementById("text");
    this.rules = document.getElementById("rules");
    this.found = document.getElementById("found");
    this.below = document.getElementById("start");
    this.marks = new Marks(this.text, document.getElementById("gutter"), document.getElementById("marks"));
    this.shown = {};
    this.waiting = 0;
    this.asked = null;
  }

  start() {
    this.marks.read(this.found);
    for (const field of [this.text, this.rules]) field.addEventListener("input", () => this.changed());
    this.found.addEventListener("click", (event) => {
      const button = event.target.closest("button.line");
      if (button) this.marks.goTo(Number(button.dataset.line), Number(button.dataset.column));
    });
    this.below.addEventListener("keydown", (event) => this.enter(event));
    this.takeFiles();
    this.takeExamples();
    document.getElementById("check").addEventListener("click", (event) => {
      event.preventDefault();
      this.check();
    });
  }

  changed() {
    this.marks.number();
    clearTimeout(this.waiting);
    this.waiting = setTimeout(() => this.check(), REST);
  }

  // The newest question counts: an older one that is still out is given up.
  async check() {
    clearTimeout(this.waiting);
    this.asked?.abort();
    const asked = (this.asked = new AbortController());
    const busy = document.getElementById("checking");
    busy.hidden = false;
    try {
      const body = new FormData(this.form);
      body.delete("file");
      const answer = await fetch(this.form.dataset.check, { method: "POST", body, signal: asked.signal });
      if (!answer.ok || answer.redirected) throw new Error(`the server answered ${answer.status}`);
      this.show(await answer.json());
    } catch (error) {
      if (asked.signal.aborted) return;
      document.getElementById("found-summary").textContent = `It could not be checked: ${error.message}`;
    }
    if (this.asked === asked) busy.hidden = true;
  }

  show({ found, start, dialect }) {
    this.put("found", this.found, found);
    this.put("start", this.below, start);
    this.marks.read(this.found);
    if (dialect === "xrc729" && !this.rules.value) document.getElementById("rules-part").open = true;
    document.getElementById("examples-row")?.toggleAttribute("hidden", Boolean(this.text.value.trim()));
    const summary = document.getElementById("found-summary").textContent;
    const first = this.found.querySelector("#problems li");
    const where = first ? ` Line ${first.dataset.line}: ${first.querySelector(".said").textContent}` : "";
    clearTimeout(this.saying);
    if (this.shown.said !== summary + where) {
      this.shown.said = summary + where;
      this.saying = setTimeout(() => say(`${summary}.${where}`), SAY_AFTER);
    }
  }

  // What is the same stays: a graph that was zoomed, a field that has the focus, details left open.
  put(name, place, html) {
    if (this.shown[name] === html) return;
    this.shown[name] = html;
    const fresh = new DOMParser().parseFromString(html, "text/html").body;
    const graph = place.querySelector("#graph svg")?.innerHTML;
    const active = place.contains(document.activeElement) ? document.activeElement : null;
    for (const one of place.querySelectorAll("details[data-keep]")) {
      const same = fresh.querySelector(`details[data-keep="${CSS.escape(one.dataset.keep)}"]`);
      if (same) same.open = same.open || one.open;
    }
    const old = place.querySelector("#graph-place");
    const next = fresh.querySelector("#graph-place");
    if (old && next && this.drawn === next.innerHTML) next.replaceWith(old);
    else if (next) this.drawn = next.innerHTML;
    place.replaceChildren(...fresh.childNodes);
    if (place.querySelector("#graph") && place.querySelector("#graph svg")?.innerHTML !== graph) startGraph();
    this.focusAgain(place, active);
  }

  focusAgain(place, active) {
    if (!active?.id) return;
    const same = place.querySelector(`#${CSS.escape(active.id)}`);
    same?.focus({ preventScroll: true });
    if (same && "selectionStart" in active && same.type === active.type && same.type === "text") {
      same.setSelectionRange(active.selectionStart, active.selectionEnd);
    }
  }

  // Enter in a field starts the run; the first button of the form only checks.
  enter(event) {
    if (event.key !== "Enter" || !event.target.matches("input:not([type=checkbox])")) return;
    const start = this.below.querySelector('[data-verb="start"]');
    if (!start) return;
    event.preventDefault();
    this.form.requestSubmit(start);
  }

  // -- files and examples ------------------------------------------------------------------------

  takeFiles() {
    const file = document.getElementById("file");
    file.addEventListener("change", async () => {
      if (file.files.length) await this.read(file.files[0]);
      file.value = "";
    });
    const place = document.getElementById("editor");
    const over = (event) => {
      if (!event.dataTransfer?.types.includes("Files")) return;
      event.preventDefault();
      place.classList.toggle("dropping", event.type !== "dragleave");
    };
    for (const kind of ["dragenter", "dragover", "dragleave"]) place.addEventListener(kind, over);
    place.addEventListener("drop", (event) => {
      const dropped = event.dataTransfer?.files[0];
      place.classList.remove("dropping");
      if (!dropped) return;
      event.preventDefault();
      this.read(dropped);
    });
  }

  async read(file) {
    const said = document.getElementById("file-said");
    const most = Number(this.form.dataset.most);
    said.hidden = file.size <= most;
    if (file.size > most) {
      said.textContent = `${file.name} has ${file.size.toLocaleString("en-US")} bytes; at most ${most.toLocaleString("en-US")} are taken.`;
      return;
    }
    this.fill(await file.text());
  }

  fill(text, rules) {
    this.text.value = text;
    if (rules !== undefined) this.rules.value = rules;
    this.marks.number();
    this.text.focus();
    this.text.setSelectionRange(0, 0);
    this.text.scrollTop = 0;
    this.check();
  }

  takeExamples() {
    const given = document.getElementById("examples");
    if (!given) return;
    const examples = JSON.parse(given.textContent);
    for (const button of document.querySelectorAll("[data-example]")) {
      button.addEventListener("click", () => this.fill(...examples[button.dataset.example]));
    }
  }
}
