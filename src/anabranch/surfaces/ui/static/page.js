// What every page has: the colours, questions before changes, times that tick, ticked rows, live parts.
import { startTicking } from "./words.js";
import { followRun } from "./run.js";
import { followRuns } from "./runs.js";
import { startGraph } from "./graph.js";
import { startTimeline } from "./timeline.js";
import { startEditor } from "./editor.js";

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
    document.getElementById("confirm-what").textContent = question;
    dialog.returnValue = "";
    dialog.onclose = () => {
      if (dialog.returnValue !== "yes") return;
      form.dataset.sure = "yes";
      form.requestSubmit(button);
    };
    dialog.showModal();
    document.getElementById("confirm-yes").focus();
  });
}

function startTicks() {
  const all = document.getElementById("all");
  const many = document.getElementById("many");
  if (!many) return;
  const boxes = () => [...many.querySelectorAll('input[name="run"]')];
  const say = () => {
    const count = boxes().filter((box) => box.checked).length;
    document.getElementById("ticked").textContent = count ? `${count} ticked` : "none ticked";
    for (const button of many.querySelectorAll('button[name="verb"]')) button.disabled = !count;
    all.checked = count > 0 && count === boxes().length;
    all.indeterminate = count > 0 && !all.checked;
  };
  all.addEventListener("change", () => {
    for (const box of boxes()) box.checked = all.checked;
    say();
  });
  many.addEventListener("change", say);
  say();
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

startTheme();
startConfirming();
startTicks();
startNeeds();
startTicking();
const graph = startGraph();
const timeline = startTimeline();
followRun({ graph, timeline });
followRuns();
startEditor();
