"""Triggers: runs that begin, or are signalled, because something happened elsewhere.

`triggers` has the verbs, `signatures` says whether a call of a hook is genuine, `firing` begins and
signals runs, `chains` follows finished runs.
"""
