// Line numbers, and a mark at each line that has a problem. The marks are buttons: one of them is in
// the order of the Tab key, the arrow keys go from one to the next, F8 does so from inside the text.
const TOP = 8;
const LINE = 20;

export class Marks {
  constructor(text, gutter, place) {
    Object.assign(this, { text, gutter, place, lines: 0, found: [] });
    text.addEventListener("scroll", () => this.draw());
    new ResizeObserver(() => this.draw()).observe(text);
    text.addEventListener("keydown", (event) => this.key(event));
    place.addEventListener("keydown", (event) => this.arrow(event));
    place.addEventListener("click", (event) => {
      const mark = event.target.closest("button");
      if (mark) this.goTo(...this.placeOf(Number(mark.dataset.line)));
    });
    this.number();
  }

  number() {
    const text = this.text.value;
    let count = 1;
    for (let at = text.indexOf("\n"); at >= 0; at = text.indexOf("\n", at + 1)) count += 1;
    this.lines = count;
    this.draw();
  }

  // Only the numbers that can be seen: a text may have very many lines.
  draw() {
    const { scrollTop, clientHeight } = this.text;
    const first = Math.max(0, Math.floor(scrollTop / LINE) - 1);
    const last = Math.min(this.lines, first + Math.ceil(clientHeight / LINE) + 3);
    const digits = String(this.lines).length;
    const numbers = Array.from({ length: Math.max(0, last - first) }, (_, index) => String(first + index + 1).padStart(digits));
    const words = numbers.join("\n");
    if (this.gutter.textContent !== words) this.gutter.textContent = words;
    this.gutter.style.transform = `translateY(${first * LINE - scrollTop}px)`;
    this.place.style.transform = `translateY(${-scrollTop}px)`;
  }

  // The problems are those of the list beside the text.
  read(list) {
    this.number();
    this.found = [...list.querySelectorAll("#problems li")].map((one) => ({
      line: Number(one.dataset.line),
      column: Number(one.querySelector("button.line").dataset.column),
      severity: one.dataset.severity,
      said: one.querySelector(".said").textContent,
    }));
    const byLine = Map.groupBy?.(this.found, (one) => one.line) ?? grouped(this.found);
    const kept = document.activeElement?.parentElement === this.place ? document.activeElement.dataset.line : "";
    this.place.replaceChildren(...[...byLine].map(([line, those], index) => mark(line, those, index)));
    this.text.setAttribute("aria-invalid", String(this.found.some((one) => one.severity === "error")));
    if (kept) (this.place.querySelector(`[data-line="${kept}"]`) ?? this.place.firstElementChild ?? this.text).focus();
  }

  placeOf(line) {
    const first = this.found.find((one) => one.line === line);
    return [line, first?.column ?? 1];
  }

  key(event) {
    if (event.key !== "F8" || !this.found.length) return;
    event.preventDefault();
    const here = this.text.value.slice(0, this.text.selectionStart).split("\n").length;
    const lines = [...new Set(this.found.map((one) => one.line))];
    const next = event.shiftKey ? lines.findLast((line) => line < here) ?? lines.at(-1)
      : lines.find((line) => line > here) ?? lines[0];
    this.goTo(...this.placeOf(next));
  }

  arrow(event) {
    const marks = [...this.place.children];
    const at = marks.indexOf(document.activeElement);
    const next = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: marks.length - 1 }[event.key];
    if (next === undefined || at < 0) return;
    event.preventDefault();
    const chosen = marks[Math.max(0, Math.min(next, marks.length - 1))];
    for (const one of marks) one.tabIndex = one === chosen ? 0 : -1;
    this.show(Number(chosen.dataset.line));
    chosen.focus({ preventScroll: true });
  }

  show(line) {
    const top = (line - 1) * LINE;
    const { scrollTop, clientHeight } = this.text;
    if (top < scrollTop || top > scrollTop + clientHeight - 3 * LINE) this.text.scrollTop = Math.max(0, top - 3 * LINE);
  }

  goTo(line, column) {
    const lines = this.text.value.split("\n");
    const start = lines.slice(0, line - 1).reduce((sum, one) => sum + one.length + 1, 0);
    const end = start + (lines[line - 1]?.length ?? 0);
    this.text.focus();
    this.text.setSelectionRange(Math.min(start + column - 1, end), end);
    this.show(line);
  }
}

function grouped(found) {
  const groups = new Map();
  for (const one of found) groups.set(one.line, [...(groups.get(one.line) ?? []), one]);
  return groups;
}

function mark(line, those, index) {
  const made = document.createElement("button");
  const worst = ["error", "warning", "note"].find((one) => those.some((each) => each.severity === one));
  made.type = "button";
  made.className = `mark at-${worst}`;
  made.dataset.line = line;
  made.textContent = line;
  made.tabIndex = index ? -1 : 0;
  made.style.top = `${TOP + (line - 1) * LINE}px`;
  const said = those.map((one) => `${one.severity}: ${one.said}`).join("; ");
  made.setAttribute("aria-label", `Line ${line}, ${said}`);
  made.title = said;
  return made;
}
