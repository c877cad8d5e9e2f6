// The page of the cluster: leases run and partitions move without any run moving, so it asks again
// every few seconds, while a person looks at it.
import { startPanel } from "./panels.js";

const EVERY = 2000;

const refresh = startPanel();
if (refresh) setInterval(() => document.hidden || refresh(), EVERY);
