"""`trigger` and `alias`: runs that begin because something happened, and names that they start.

Acting on finished runs is the work of an engine, taking calls that of a server.
"""
