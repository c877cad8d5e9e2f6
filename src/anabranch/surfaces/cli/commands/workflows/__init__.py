"""`dispatches`, `snapshot`, `template`, `participants` and `passport`: the verbs around Arca workflows.

Running one is `run`, as for any definition.
"""
