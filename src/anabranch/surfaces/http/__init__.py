"""The HTTP API: one table of routes, one module a resource, errors that say what to change.

Limits stand in `guard`, bodies in `io`, handlers in `resources`; a handler holds no rule.
"""
