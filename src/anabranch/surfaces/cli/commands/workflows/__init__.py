"""The verbs around Arca: `dispatches`, `snapshot`, `template`, `participants` and `passport`.

Running one is `run`, as for any definition.
"""
