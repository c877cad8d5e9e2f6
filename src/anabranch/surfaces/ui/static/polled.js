// Pages of what changes without any run moving (leases, servers, compute clusters): their panel is
// asked for again every few seconds, while a person looks at it.
import { startPanel } from "./panels.js";

const EVERY = 2000;

const refresh = startPanel();
if (refresh) setInterval(() => document.hidden || refresh(), EVERY);
