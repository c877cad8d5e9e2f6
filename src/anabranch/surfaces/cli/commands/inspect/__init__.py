"""`check`, `fmt`, `graph`, `registry`, `runs`, `show`, `events`, `explain` and `get`.

These verbs change no run.
"""
