// The lines that work prints: new ones are appended; of very many only the last stay on the page.
import { listen } from "./stream.js";
import { tick } from "./words.js";

const LINES_MAX = 5000;
const NEAR = 40; // pixels from the end that still count as the end

// On the page of logs, and on that of a step.
export function followLogs() {
  for (const list of document.querySelectorAll("main .log-lines")) followLines(list);
}

// Returns how to stop; the card around it is left alone by panels as long as it follows.
export function followLines(list) {
  list.scrollTop = list.scrollHeight;
  if (!list.dataset.follow) return () => {};
  const address = new URL(list.dataset.follow, location.href);
  const hear = ({ html, last }) => {
    address.searchParams.set("after", last); // a new connection begins behind it
    const atEnd = list.scrollHeight - list.scrollTop - list.clientHeight < NEAR;
    const parsed = new DOMParser().parseFromString(`<ol>${html}</ol>`, "text/html");
    list.append(...parsed.querySelectorAll("li"));
    while (list.children.length > LINES_MAX) list.firstElementChild.remove();
    const some = list.children.length > 0;
    list.hidden = !some;
    const empty = list.parentElement.querySelector(".empty");
    if (empty) empty.hidden = some;
    const all = list.parentElement.querySelector(".row a");
    if (all) all.hidden = !some;
    tick(list);
    if (atEnd) list.scrollTop = list.scrollHeight;
  };
  const end = () => {
    delete list.dataset.following;
    const empty = list.parentElement.querySelector(".empty");
    if (empty?.textContent.startsWith("Nothing was printed yet")) empty.textContent = "Nothing was printed.";
  };
  list.dataset.following = "";
  const stop = listen(() => address, { logs: hear, end });
  return () => {
    stop();
    delete list.dataset.following;
  };
}
