// How scripts say things; the same words as the server's.
const LOOKS = {
  running: "active", waiting: "waiting", paused: "waiting", completed: "done", partial: "partial",
  failed: "failed", step_timeout: "failed", deadline_exceeded: "failed", cancelled: "quiet",
  new: "active", ready: "active", sleeping: "active", held: "waiting", joining: "waiting",
  deciding: "waiting", done: "done", aborted: "failed", skipped: "quiet", discarded: "quiet",
};

export const lookOf = (status) => LOOKS[status] ?? "plain";
export const amount = (number) => number.toLocaleString("en-US");

export function badge(status) {
  const made = document.createElement("span");
  made.className = `badge look-${lookOf(status)}`;
  made.textContent = status.replaceAll("_", " ");
  return made;
}

export function span(milliseconds) {
  if (milliseconds < 1000) return `${Math.round(milliseconds)} ms`;
  if (milliseconds < 10_000) return `${(milliseconds / 1000).toFixed(1)} s`;
  let left = Math.round(milliseconds / 1000);
  const parts = [];
  for (const [size, unit] of [[86_400, "d"], [3600, "h"], [60, "min"], [1, "s"]]) {
    if (left >= size) {
      parts.push(`${Math.floor(left / size)} ${unit}`);
      left %= size;
    }
  }
  return parts.slice(0, 2).join(" ");
}

// The difference between the clocks does not matter for spans of minutes; it does for none at all.
export function tick(root = document) {
  const now = Date.now();
  for (const one of root.querySelectorAll(".ticks")) {
    const { since, until } = one.dataset;
    const text = since ? span(Math.max(0, now - since))
      : until > now ? `in ${span(until - now)}` : "now";
    if (one.textContent !== text) one.textContent = text;
  }
}

export function startTicking() {
  tick();
  setInterval(tick, 1000);
}

// What moves is said, not shown moving, where people asked for less of it.
export const still = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

// Puts what the server rendered in the place of what was there. Scripts in it would not run: a
// parsed document has none that do.
export function replacePart(place, html) {
  const parsed = new DOMParser().parseFromString(html, "text/html");
  const focused = place.contains(document.activeElement) ? markOf(document.activeElement) : null;
  const open = new Set([...place.querySelectorAll("details[open] > summary")].map((one) => one.textContent));
  place.replaceChildren(...parsed.body.childNodes);
  for (const one of place.querySelectorAll("details > summary")) if (open.has(one.textContent)) one.parentElement.open = true;
  if (focused) [...place.querySelectorAll("a, button, summary")].find((one) => markOf(one) === focused)?.focus();
  tick(place);
}

// By what a link, button or summary is found again in the new text.
const markOf = (one) => one.getAttribute("href") ?? one.getAttribute("aria-label") ?? one.textContent.trim();

export function say(text) {
  document.getElementById("said").textContent = text;
}

export function liveState(text) {
  const place = document.getElementById("live-state");
  place.hidden = !text;
  place.classList.toggle("away", text !== "live");
  if (place.textContent !== text) place.textContent = text;
}
