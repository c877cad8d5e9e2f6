"""Faces of the same verbs: the command line, the HTTP API, the pages for people, the worker.

A surface parses, calls one operation and renders; it holds no rule.
"""
