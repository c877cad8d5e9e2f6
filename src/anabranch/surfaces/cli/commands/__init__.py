"""The commands, one module a family of verbs.

A command reads its arguments, asks a backend and prints; it holds no rule.
"""
