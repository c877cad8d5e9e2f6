"""PURE. Decides what happens in a run; never acts, waits, reads a clock or draws a number."""
