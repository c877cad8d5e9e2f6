"""Jinja2 as an expression language: the sandbox, its limits, filters and tests.

PURE. Nothing here knows playbooks.
"""
