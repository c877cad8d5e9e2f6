// What every page has: the colours, questions before changes, times that tick, live parts.
import { startTicking } from "./words.js";
import { followRun } from "./run.js";
import { followRuns, startTicks } from "./runs.js";
import { followLogs } from "./logs.js";
import { followInbox } from "./inbox.js";
import { startGraph } from "./graph.js";
import { startTimeline } from "./timeline.js";
import { startEditor } from "./editor.js";
import { startDrawer } from "./drawer.js";
import { startCopying } from "./copy.js";
import { startKeys } from "./keys.js";
import { startCount } from "./count.js";

const THEMES = ["", "light", "dark"];
const THEME_WORDS = { "": "as the system", light: "light", dark: "dark" };

function startTheme() {
  const button = document.getElementById("theme");
  const root = document.documentElement;
  const say = () => {
    const now = root.dataset.theme ?? "";
    button.setAttribute("aria-label", `Colours: ${THEME_WORDS[now]}`);
    button.title = `Colours: ${THEME_WORDS[now]}`;
    button.textContent = { "": "◐", light: "○", dark: "●" }[now];
  };
  button.addEventListener("click", () => {
    const next = THEMES[(THEMES.indexOf(root.dataset.theme ?? "") + 1) % THEMES.length];
    if (next) root.dataset.theme = next;
    else delete root.dataset.theme;
    try {
      localStorage.setItem("anabranch-theme", next);
    } catch {
      // Private windows have no storage; the choice then lasts for this page.
    }
    say();
  });
  say();
}

// A form, or one of its buttons, may ask first. The dialog keeps the focus and gives it back.
function startConfirming() {
  const dialog = document.getElementById("confirm");
  document.addEventListener("submit", (event) => {
    const form = event.target;
    const button = event.submitter;
    const question = button?.dataset.confirm ?? form.dataset.confirm;
    if (!question || form.dataset.sure) {
      delete form.dataset.sure;
      return;
    }
    event.preventDefault();
    const why = document.getElementById("confirm-why");
    const yes = document.getElementById("confirm-yes");
    const asksWhy = "reason" in form.dataset;
    document.getElementById("confirm-what").textContent = question;
    document.getElementById("confirm-reason").hidden = !asksWhy;
    why.value = "";
    yes.className = button?.classList.contains("danger") ? "danger" : "";
    yes.textContent = form.dataset.does ? `Yes, ${form.dataset.does.toLowerCase()}` : "Yes";
    dialog.returnValue = "";
    dialog.onclose = () => {
      if (dialog.returnValue !== "yes") return;
      const now = form.isConnected ? form : sameForm(form);
      if (!now) return; // what it was about has gone meanwhile
      if (asksWhy) now.elements.namedItem("reason").value = why.value;
      now.dataset.sure = "yes";
      now.requestSubmit(now === form ? button : now.querySelector("button"));
    };
    dialog.showModal();
    (asksWhy ? why : yes).focus();
  });
  // Enter in the field means yes: the first button of a form would mean no.
  document.getElementById("confirm-why").addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    document.getElementById("confirm-yes").click();
  });
}

// A live page may have put another form in the place of the one that was asked about.
function sameForm(form) {
  const values = (one) => JSON.stringify([...new FormData(one)]);
  return [...document.forms].find((one) => one.action === form.action && values(one) === values(form));
}

// What was left empty need not stand in the address.
function startFilters() {
  for (const form of document.querySelectorAll("form.filters")) {
    form.addEventListener("submit", () => {
      for (const field of form.elements) if (field.name && !field.value) field.disabled = true;
    });
    addEventListener("pageshow", () => { for (const field of form.elements) field.disabled = false; });
  }
}

// A button that needs a field filled says so itself, before the server has to.
function startNeeds() {
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button?.form) return;
    for (const needing of button.form.querySelectorAll("button[data-needs]")) {
      const field = button.form.elements.namedItem(needing.dataset.needs);
      field.required = needing === button;
    }
  });
}

// On a narrow screen the page one is on may be the last of its tabs.
function startTabs() {
  for (const tab of document.querySelectorAll(".tabs a[aria-current]")) {
    const row = tab.parentElement;
    const over = tab.offsetLeft + tab.offsetWidth - row.offsetLeft - row.clientWidth;
    if (over > 0) row.scrollLeft = over + 12;
  }
}

startTheme();
startTabs();
startConfirming();
startTicks();
startFilters();
startNeeds();
startTicking();
startCopying();
startKeys();
startCount();
const drawer = startDrawer();
const graph = startGraph(drawer);
const timeline = startTimeline(drawer);
followRun({ graph, timeline, drawer });
followRuns();
followLogs();
followInbox();
startEditor();
