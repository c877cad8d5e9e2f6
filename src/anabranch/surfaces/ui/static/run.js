// The pages of one run: what the server says of it is put in place, without loading anything again.
import { startPanel } from "./panels.js";
import { startRefetching } from "./refetch.js";
import { listen } from "./stream.js";
import { amount, badge, liveState, replacePart, say, tick } from "./words.js";

export function followRun({ graph, timeline, drawer }) {
  const page = document.getElementById("run");
  if (!page) return;
  const first = document.getElementById("moving");
  if (first && graph) graph.begin(JSON.parse(first.textContent));
  if (!page.dataset.live) return;
  const steps = new Map(
    [...document.querySelectorAll("#steps tr[data-step]")].map((row) => [row.dataset.step, row]),
  );
  let status = document.querySelector("#status .badge")?.textContent ?? "";
  const events = startEvents();
  const panel = startPanel();
  const refetch = startRefetching();

  const hear = (told) => {
    graph?.show(told);
    for (const [name, step] of Object.entries(told.steps)) showStep(steps.get(name), ...step);
    for (const [name, value] of Object.entries(told.counts)) {
      const place = page.querySelector(`[data-number="${name}"]`);
      if (place) place.textContent = amount(value);
    }
    const words = told.status.replaceAll("_", " ");
    if (words !== status) {
      status = words;
      document.getElementById("status").replaceChildren(badge(told.status));
      say(`The run is ${words}.`);
    }
    showProblems(told);
    showVerbs(page, told);
    timeline?.refresh(told.finished);
    events?.();
    panel?.();
    drawer?.refresh();
    refetch?.();
  };
  const hearPart = ({ name, html }) => {
    const place = page.querySelector(`[data-part="${name}"]`);
    if (place) replacePart(place, html);
  };
  const heard = { run: hear, ways: (told) => graph?.showWays(told), part: hearPart };
  listen(() => page.dataset.live, heard, liveState);
}

// How many of its step runs did not end as they should.
function showProblems({ problems, status }) {
  const place = document.getElementById("problems-said");
  const words = problems ? `${amount(problems)} problem${problems > 1 ? "s" : ""}` : "";
  if (!place || place.textContent.trim() === words) return;
  const made = badge(["completed", "running", "waiting", "paused"].includes(status) ? "waiting" : "failed");
  made.textContent = words;
  place.replaceChildren(...(words ? [" ", made] : []));
}

function showStep(row, state, runs, here) {
  if (!row) return;
  row.querySelector("[data-status]").replaceChildren(badge(state));
  row.querySelector("[data-runs]").textContent = amount(runs);
  row.querySelector("[data-here]").textContent = amount(here);
}

function showVerbs(page, told) {
  const shown = {
    paused: !told.finished && told.status === "paused",
    "not-paused": !told.finished && told.status !== "paused",
    unfinished: !told.finished,
    finished: told.finished,
    redrivable: told.finished && !told.troubled && told.status !== "completed",
  };
  for (const place of page.querySelectorAll("[data-when]")) {
    if (place.hidden === shown[place.dataset.when]) place.hidden = !shown[place.dataset.when];
  }
  if (told.finished) {
    const why = document.getElementById("why-section");
    if (why) why.hidden = true;
    const took = document.querySelector("#took .ticks");
    if (took) {
      tick();
      took.classList.remove("ticks");
      took.parentElement.firstChild.textContent = "took ";
    }
  }
}

// New events are appended; of very many only the last stay on the page.
const ROWS_MAX = 1000;

function startEvents() {
  const table = document.getElementById("events");
  if (!table?.dataset.rows) return null;
  const body = table.tBodies[0];
  let after = Number(table.dataset.after);
  let asking = false;
  let again = false;
  const ask = async () => {
    if (asking) {
      again = true;
      return;
    }
    asking = true;
    try {
      const kind = encodeURIComponent(table.dataset.kind);
      const answer = await fetch(`${table.dataset.rows}?after=${after}&kind=${kind}`);
      if (answer.ok) {
        const parsed = new DOMParser().parseFromString(`<table>${await answer.text()}</table>`, "text/html");
        const more = Number(answer.headers.get("X-After"));
        again = again || (more > after && parsed.querySelectorAll("tr").length >= 100);
        after = more;
        body.append(...parsed.querySelectorAll("tr"));
        while (body.rows.length > ROWS_MAX) body.rows[0].remove();
      }
    } finally {
      asking = false;
      if (again) {
        again = false;
        setTimeout(ask, 300);
      }
    }
  };
  return ask;
}
