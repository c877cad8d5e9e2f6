// The inbox: what another person has answered is marked, and new questions are announced.
import { listen } from "./stream.js";
import { liveState, say } from "./words.js";

export function followInbox() {
  const inbox = document.getElementById("inbox");
  if (!inbox) return;
  const hear = ({ open, more }) => {
    const there = new Set(open);
    const cards = [...inbox.querySelectorAll("article[data-key]")];
    for (const card of cards) if (!there.has(card.dataset.key) && !more) answered(card);
    if ("first" in inbox.dataset) announce(open, new Set(cards.map((card) => card.dataset.key)));
  };
  listen(() => inbox.dataset.liveGates, { gates: hear }, liveState);
}

// A person who is writing an answer must not lose it: the card stays and is closed.
function answered(card) {
  if (card.classList.contains("over")) return;
  card.classList.add("over");
  const note = document.createElement("p");
  note.className = "hint";
  note.textContent = "This was answered meanwhile, or is no longer asked.";
  card.querySelector(".decide")?.querySelectorAll("button").forEach((button) => { button.disabled = true; });
  card.append(note);
  say(`${card.querySelector("h2").textContent} was answered meanwhile.`);
}

// Those that stand before the first one known are new.
function announce(open, known) {
  const at = open.findIndex((key) => known.has(key));
  const fresh = open.slice(0, at < 0 ? open.length : at);
  if (!fresh.length) return;
  const newer = document.getElementById("newer");
  newer.querySelector("a").textContent = fresh.length === 1 ? "A new question: show it" : `${fresh.length} new questions: show them`;
  newer.hidden = false;
}
