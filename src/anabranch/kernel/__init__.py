"""Decides what happens in a run: `step` turns a stimulus into events, `evolve` applies them.

PURE: it never acts, waits, reads a clock or draws a number, and knows no dialect. Only the modules
called `evolve…` change a state.
"""
