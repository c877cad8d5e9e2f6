"""Schedules: runs that begin by the clock, once for each tick, whatever crashes.

`schedules` has the verbs, `plan` decides what is due, `scheduler` carries it out beside an engine.
"""
