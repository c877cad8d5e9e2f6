// Panels: a part of a page that the server renders again when something has happened. It is put in
// place card by card, so that what did not change keeps its focus, its open details and its fields.
import { listen } from "./stream.js";
import { liveState, say, tick } from "./words.js";

const REST = 300;

export function startPanel() {
  const place = document.querySelector("[data-panel]");
  if (!place) return null;
  const refresh = refresher(place);
  if (place.dataset.panelLive) followRunsOf(place, refresh);
  return refresh;
}

// Asks at once and then rests: many changes in a short time become one question, and the last
// change is never missed.
export function refresher(place) {
  const shown = new Map();
  let busy = false;
  let again = false;
  const refresh = async () => {
    if (busy) {
      again = true;
      return;
    }
    busy = true;
    try {
      const answer = await fetch(place.dataset.panel);
      if (answer.ok && !answer.redirected) put(place, await answer.text(), shown);
    } catch {
      // The server is away, or the page is being left; the stream says so.
    }
    setTimeout(() => {
      busy = false;
      if (again) {
        again = false;
        refresh();
      }
    }, REST);
  };
  return refresh;
}

function put(place, html, shown) {
  const fresh = [...new DOMParser().parseFromString(html, "text/html").body.children];
  const old = new Map([...place.children].map((one) => [one.dataset.key, one]));
  const kept = fresh.map((one) => {
    const key = one.dataset.key;
    const before = key ? old.get(key) : undefined;
    const text = one.outerHTML;
    if (before && (shown.get(key) === text || isUsed(before) || before.querySelector("[data-following]"))) return before;
    if (key) shown.set(key, text);
    if (before) carryOver(before, one);
    return one;
  });
  const focused = place.contains(document.activeElement) ? wayTo(document.activeElement) : null;
  if (kept.length !== place.children.length || kept.some((one, at) => one !== place.children[at])) {
    place.replaceChildren(...kept);
  }
  if (focused) place.querySelector(focused)?.focus({ preventScroll: true });
  tick(place);
}

// A person is typing into this card: it is left alone until they are done.
function isUsed(card) {
  const active = document.activeElement;
  const fields = [...card.querySelectorAll("input:not([type=hidden]), textarea")];
  return fields.some((field) => field === active || field.value !== field.defaultValue);
}

function carryOver(before, after) {
  for (const one of before.querySelectorAll("details[data-keep]")) {
    const same = after.querySelector(`details[data-keep="${CSS.escape(one.dataset.keep)}"]`);
    if (same) same.open = one.open;
  }
  const words = (card) => card.querySelector("h2 .badge, h3 .badge")?.textContent ?? "";
  const name = after.querySelector("h2, h3")?.firstChild?.textContent.trim() ?? "";
  if (words(before) !== words(after)) say(`${name}: ${words(after)}.`);
}

// A selector that finds the same thing in the new card.
function wayTo(element) {
  const card = element.closest("[data-key]");
  if (!card) return null;
  const inside = element.matches("summary") && element.parentElement.dataset.keep
    ? `details[data-keep="${CSS.escape(element.parentElement.dataset.keep)}"] > summary`
    : element.id ? `#${CSS.escape(element.id)}`
      : element.getAttribute("href") ? `[href="${CSS.escape(element.getAttribute("href"))}"]` : "";
  return inside ? `[data-key="${CSS.escape(card.dataset.key)}"] ${inside}` : null;
}

// A list of runs: it is asked for again when one of them has moved, or a new one has begun; also
// after the first message, for what happened between the page and the stream.
function followRunsOf(place, refresh) {
  let known = false;
  const hear = ({ moved }) => {
    if (!known || Object.keys(moved).length) refresh();
    known = true;
  };
  listen(() => place.dataset.panelLive, { runs: hear }, liveState);
}
