// The pages of a node: they ask again every few seconds while a person looks at them, and not while
// the keyboard is in what would be replaced or a question is open.
import { startPanel } from "./panels.js";

const EVERY = 2000;

const refresh = startPanel();
const place = document.querySelector("[data-panel]");
const isUsed = () => document.hidden || place.contains(document.activeElement)
  || document.querySelector("dialog[open]") !== null;
if (refresh) setInterval(() => isUsed() || refresh(), EVERY);
