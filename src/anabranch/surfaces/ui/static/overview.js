// The overview counts many runs: it is asked for again seldom, and only while a person looks at it.
import { startPanel } from "./panels.js";

const EVERY = 10_000;

const refresh = startPanel();
if (refresh) setInterval(() => document.hidden || refresh(), EVERY);
