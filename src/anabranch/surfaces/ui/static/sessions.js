// The page of sessions: its cards follow what happens.
import { startPanel } from "./panels.js";

startPanel();
