// How scripts say things; the same words as the server's.
const LOOKS = {
  running: "active", waiting: "waiting", paused: "waiting", completed: "done", partial: "partial",
  failed: "failed", step_timeout: "failed", deadline_exceeded: "failed", cancelled: "quiet",
  new: "active", ready: "active", sleeping: "active", held: "waiting", joining: "waiting",
  deciding: "waiting", queued: "waiting", retrying: "waiting", parked: "waiting", done: "done",
  valid: "done", invalid: "waiting", "invalid by error": "failed", aborted: "failed", skipped: "quiet", discarded: "quiet",
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

const two = (number) => String(number).padStart(2, "0");
const dayOf = (at) => `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
const clockOf = (at) => `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
const thousandths = (at) => String(at.getMilliseconds()).padStart(3, "0");
const FORMS = { moment: (at) => `${dayOf(at)} ${clockOf(at)}`, clock: (at) => `${clockOf(at)}.${thousandths(at)}` };
const ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone;

// The time of this browser in the place of UTC; the exact instant in both is said on hover.
function localise(root) {
  for (const one of root.querySelectorAll("time[datetime]:not([data-here])")) {
    const at = new Date(one.dateTime);
    if (Number.isNaN(at.getTime())) continue;
    one.dataset.here = "";
    const form = FORMS[one.dataset.form];
    if (form && one.firstChild) one.firstChild.data = form(at);
    one.title = exactly(at);
  }
}

export function exactly(at) {
  return `${dayOf(at)} ${clockOf(at)}.${thousandths(at)} ${ZONE}\n${at.toISOString().replace("T", " ").replace("Z", " UTC")}`;
}

// The difference between the clocks does not matter for spans of minutes; it does for none at all.
export function tick(root = document) {
  localise(root);
  const now = Date.now();
  for (const one of root.querySelectorAll(".ticks")) {
    const { since, until, ago } = one.dataset;
    const text = since ? span(Math.max(0, now - since)) + (ago === undefined ? "" : " ago")
      : until > now ? `in ${span(until - now)}` : "now";
    if (one.textContent !== text) one.textContent = text;
  }
}

export function startTicking() {
  const zone = document.getElementById("zone");
  if (zone && ZONE !== "UTC") zone.textContent = `Times are those of ${ZONE}; point at one to see it in UTC.`;
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
