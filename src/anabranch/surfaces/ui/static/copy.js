// Buttons that copy: what they name, or the text of what stands before them.
import { say } from "./words.js";

const SAID = 1600; // milliseconds that a button says how it went

export function startCopying() {
  document.addEventListener("click", async (event) => {
    const button = event.target.closest?.("button.copy");
    if (!button) return;
    event.preventDefault();
    const text = button.dataset.copy ?? button.previousElementSibling?.textContent ?? "";
    const done = await put(text);
    button.classList.remove("done", "failed");
    button.classList.add(done ? "done" : "failed");
    say(done ? "Copied." : "The browser does not let this page copy.");
    setTimeout(() => button.classList.remove("done", "failed"), SAID);
  });
}

// Only secure pages have a clipboard; on others a selection is copied, as with the keyboard.
async function put(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return bySelection(text);
  }
}

function bySelection(text) {
  const focused = document.activeElement;
  const field = document.createElement("textarea");
  field.value = text;
  field.className = "unseen";
  const place = document.querySelector("dialog[open]") ?? document.body;
  place.append(field);
  field.select();
  const done = document.execCommand("copy");
  field.remove();
  focused?.focus({ preventScroll: true });
  return done;
}
