// The lines that work prints: new ones are appended; of very many only the last stay on the page.
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
  const source = new EventSource(list.dataset.follow);
  const stop = () => {
    source.close();
    delete list.dataset.following;
  };
  list.dataset.following = "";
  source.addEventListener("logs", (message) => {
    const { html } = JSON.parse(message.data);
    const atEnd = list.scrollHeight - list.scrollTop - list.clientHeight < NEAR;
    const parsed = new DOMParser().parseFromString(`<ol>${html}</ol>`, "text/html");
    list.append(...parsed.querySelectorAll("li"));
    while (list.children.length > LINES_MAX) list.firstElementChild.remove();
    const some = list.children.length > 0;
    list.hidden = !some;
    const empty = list.parentElement.querySelector(".empty");
    if (empty) empty.hidden = some;
    tick(list);
    if (atEnd) list.scrollTop = list.scrollHeight;
  });
  source.addEventListener("end", () => {
    stop();
    const empty = list.parentElement.querySelector(".empty");
    if (empty?.textContent.startsWith("Nothing was printed yet")) empty.textContent = "Nothing was printed.";
  });
  return stop;
}
