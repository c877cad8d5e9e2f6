// The list of runs: counters and statuses move; that there are newer runs is said, not forced in.
import { amount, badge, liveState } from "./words.js";

export function followRuns() {
  const list = document.querySelector("[data-live-runs]");
  if (!list) return;
  const newer = document.getElementById("newer");
  const onlyNote = "liveOnlyNote" in list.dataset;
  const source = new EventSource(list.dataset.liveRuns);
  let first = true;
  source.addEventListener("open", () => liveState("live"));
  source.addEventListener("error", () => liveState("not connected; trying again"));
  source.addEventListener("runs", (message) => {
    const { counts, moved } = JSON.parse(message.data);
    for (const place of document.querySelectorAll("#counters [data-count]")) {
      const text = amount(counts[place.dataset.count] ?? 0);
      if (place.textContent !== text) place.textContent = text;
    }
    let unknown = false;
    for (const [run, status] of Object.entries(moved)) {
      const row = list.querySelector(`tr[data-run="${CSS.escape(run)}"]`);
      if (row) row.querySelector("[data-status]").replaceChildren(badge(status));
      else unknown = true;
    }
    if (!first && (onlyNote ? Object.keys(moved).length : unknown)) newer.hidden = false;
    first = false;
  });
}
