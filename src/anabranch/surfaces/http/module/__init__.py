"""A module over HTTP: one process that serves the table of a module to its host, on loopback.

It holds no rule of any module.
"""
