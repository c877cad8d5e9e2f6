"""The verbs around Arca workflows: `dispatches`, `snapshot`, `template`, `participants`, `passport`.

Running one is `run`, as for any definition.
"""
