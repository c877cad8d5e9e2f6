// The drawer: a step beside the page it was opened from. Every link with `data-drawer` leads to a
// page of its own; with scripts the same cards are shown in a dialog, which keeps the focus, closes
// with Escape and gives the focus back. While it is open the address is that of the step.
import { followLines } from "./logs.js";
import { refresher } from "./panels.js";
import { tick } from "./words.js";

export function startDrawer() {
  const dialog = document.getElementById("drawer");
  if (!dialog || !document.getElementById("run")) return null;
  const drawer = new Drawer(dialog);
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-drawer]");
    if (!link || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    // On the page of a step its other runs are pages as well.
    if (!dialog.open && document.querySelector(".step-page")?.contains(link)) return;
    event.preventDefault();
    drawer.open(link.getAttribute("href"));
  });
  return drawer;
}

class Drawer {
  constructor(dialog) {
    this.dialog = dialog;
    this.body = dialog.querySelector("#drawer-body");
    this.own = dialog.querySelector("#drawer-own");
    this.update = null;
    this.stopLogs = () => {};
    this.back = "";
    dialog.querySelector("#drawer-close").addEventListener("click", () => dialog.close());
    dialog.addEventListener("close", () => {
      if (!dialog.open) this.closed(); // it is told late: the next step may be shown by now
    });
    dialog.addEventListener("click", (event) => {
      if (event.target === dialog) dialog.close(); // beside it
    });
    addEventListener("popstate", () => {
      if (dialog.open) dialog.close();
    });
  }

  async open(way) {
    const [path, query] = way.split("?");
    const panel = `${path}/panel${query ? `?${query}` : ""}`;
    const answer = await fetch(panel).catch(() => null);
    if (!answer?.ok || answer.redirected) {
      location.assign(way); // the page says what is wrong
      return;
    }
    const text = await answer.text();
    if (!this.dialog.open) this.closed();
    const parsed = new DOMParser().parseFromString(text, "text/html");
    const place = document.createElement("div");
    place.className = "drawer-cards";
    place.dataset.panel = panel;
    place.append(...parsed.body.children);
    this.body.replaceChildren(place);
    this.own.href = way;
    this.update = refresher(place);
    tick(place);
    this.dialog.setAttribute("aria-label", `Step ${decodeURIComponent(path.split("/").pop())}`);
    if (this.dialog.open) {
      history.replaceState({ drawer: way }, "", way);
    } else {
      this.back = location.href;
      history.pushState({ drawer: way }, "", way);
      this.dialog.showModal();
    }
    this.stopLogs();
    const lines = place.querySelector(".log-lines");
    this.stopLogs = lines ? followLines(lines) : () => {};
    this.dialog.scrollTop = 0;
    this.own.focus({ preventScroll: true });
  }

  closed() {
    this.stopLogs();
    this.body.replaceChildren();
    this.update = null;
    if (this.back && location.href !== this.back) history.replaceState(null, "", this.back);
    this.back = "";
  }

  refresh() {
    if (this.dialog.open) this.update?.();
  }
}
