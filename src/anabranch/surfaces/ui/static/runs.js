// The list of runs: counters and rows move; that there are newer runs is said, not forced in.
import { listen } from "./stream.js";
import { amount, badge, liveState, span } from "./words.js";

export function followRuns() {
  const list = document.querySelector("[data-live-runs]");
  if (!list) return;
  const newer = document.getElementById("newer");
  const hear = ({ counts, moved, begun }) => {
    showCounts(counts);
    for (const [run, told] of Object.entries(moved)) {
      const row = list.querySelector(`tr[data-run="${CSS.escape(run)}"]`);
      if (row) showRow(row, told);
    }
    if (begun) {
      newer.querySelector("a").textContent = `${amount(begun)} new ${begun === 1 ? "run has" : "runs have"} started: show`;
      newer.hidden = false;
    }
  };
  listen(() => addressOf(list), { runs: hear }, liveState);
}

// It names the rows: each connection begins with how they stand, whatever happened before it.
function addressOf(list) {
  const address = new URL(list.dataset.liveRuns, location.href);
  for (const row of list.querySelectorAll("tr[data-run]")) address.searchParams.append("run", row.dataset.run);
  return address;
}

function showCounts(counts) {
  const all = Object.values(counts).reduce((sum, one) => sum + one, 0);
  for (const place of document.querySelectorAll("#counters [data-count]")) {
    const name = place.dataset.count;
    const text = amount(name === "*" ? all : counts[name] ?? 0);
    if (place.textContent !== text) place.textContent = text;
  }
}

function showRow(row, { status, events, ended, reason }) {
  const place = row.querySelector("[data-status]");
  if (place.textContent.trim() !== status.replaceAll("_", " ")) place.replaceChildren(badge(status));
  row.querySelector("[data-events]").textContent = amount(events);
  if (reason !== undefined) showReason(row.querySelector(".reason"), reason);
  if (ended) row.querySelector("[data-took]").replaceChildren(span(ended - Number(row.dataset.begun)));
}

function showReason(place, reason) {
  if (place.textContent.trim() === reason) return;
  const what = document.createElement("span");
  what.className = "what";
  what.textContent = what.title = reason;
  place.replaceChildren(...(reason ? [what] : []));
}

// Ticks: all at once, a range with shift, and the arrow keys from one to the next.
export function startTicks() {
  const many = document.getElementById("many");
  if (!many) return;
  const all = document.getElementById("all");
  const whole = document.getElementById("whole");
  const boxes = [...many.querySelectorAll('input[name="run"]')];
  let last = null;
  const say = () => {
    const count = boxes.filter((box) => box.checked).length;
    const which = whole?.checked;
    document.getElementById("ticked").textContent = which ? "all of them" : count ? `${count} ticked` : "none ticked";
    document.getElementById("actions").classList.toggle("idle", !count && !which);
    for (const button of many.querySelectorAll('button[name="verb"]')) button.disabled = !count && !which;
    all.checked = count > 0 && count === boxes.length;
    all.indeterminate = count > 0 && !all.checked;
  };
  all.addEventListener("change", () => {
    for (const box of boxes) box.checked = all.checked;
    say();
  });
  many.addEventListener("click", (event) => {
    const at = boxes.indexOf(event.target);
    if (at < 0) return;
    if (event.shiftKey && last !== null) {
      const [from, to] = [Math.min(at, last), Math.max(at, last)];
      for (const box of boxes.slice(from, to + 1)) box.checked = event.target.checked;
      say();
    }
    last = at;
  });
  many.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const at = boxes.indexOf(event.target);
    if (!step || at < 0 || !boxes[at + step]) return;
    event.preventDefault();
    if (event.shiftKey) boxes[at + step].checked = event.target.checked;
    boxes[at + step].focus();
    say();
  });
  many.addEventListener("change", say);
  addEventListener("pageshow", say); // a browser that goes back keeps the ticks
  say();
}
