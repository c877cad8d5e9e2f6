"""PURE. Jinja2 as an expression language: the sandbox, its limits, filters and tests.

Nothing here knows playbooks.
"""
