// Shortcuts: a letter does nothing while a person types, or with a modifier, or below a question.
const WAIT = 1500; // milliseconds from `g` to its letter
const FIELDS = "form[role=search] input[type=search], form[role=search] input:not([type=hidden], [type=checkbox], [type=radio])";
const ROWS = "table.runs td.who a, #steps tbody td:first-child a, .lanes tbody td:first-child a, .waits .what a, .gate h2 + a, .gate .facts a:first-of-type";

export function startKeys() {
  const help = document.getElementById("keys");
  if (!help) return;
  tellWays(help);
  document.getElementById("show-keys")?.addEventListener("click", () => help.showModal());
  help.addEventListener("click", (event) => { if (event.target === help) help.close(); });
  let going = -Infinity; // when `g` was pressed
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || isTyping(event.target)) return;
    if (document.querySelector("dialog[open]")) return;
    if (performance.now() - going < WAIT) {
      going = -Infinity;
      document.querySelector(`nav a[data-go="${CSS.escape(event.key)}"]`)?.click();
      event.preventDefault();
      return;
    }
    const does = {
      "/": search, "?": () => help.showModal(), j: () => row(1), k: () => row(-1),
      "[": () => tab(-1), "]": () => tab(1), g: () => { going = performance.now(); },
    }[event.key];
    if (!does) return;
    event.preventDefault();
    does();
  });
  if (location.hash === "#search") search();
}

const isTyping = (target) => target.closest?.("input, textarea, select, [contenteditable]") !== null;

// The letters are those of the navigation.
function tellWays(help) {
  const ways = [...document.querySelectorAll("nav a[data-go]")];
  const place = help.querySelector("#keys-go");
  for (const way of ways) {
    const key = document.createElement("kbd");
    key.textContent = way.dataset.go;
    place.append(key, ` ${way.firstChild.textContent.trim().toLowerCase()}${way === ways.at(-1) ? "" : ", "}`);
  }
  place.hidden = !ways.length;
}

function search() {
  const field = document.querySelector(FIELDS);
  if (field) {
    field.focus();
    field.select?.();
  } else location.assign("/runs#search");
}

// From where the keyboard is, or from the beginning.
function row(step) {
  const rows = [...document.querySelectorAll(ROWS)].filter((one) => one.checkVisibility());
  const at = rows.indexOf(document.activeElement);
  rows[at < 0 ? (step > 0 ? 0 : rows.length - 1) : at + step]?.focus();
}

function tab(step) {
  const tabs = [...document.querySelectorAll("#run > nav.tabs a")];
  const at = tabs.findIndex((one) => one.getAttribute("aria-current"));
  if (at >= 0) tabs[at + step]?.click();
}
