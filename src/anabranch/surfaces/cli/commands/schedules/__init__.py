"""`schedule`: runs that begin by the clock.

Beginning them is the work of an engine: a server, or a program with one.
"""
