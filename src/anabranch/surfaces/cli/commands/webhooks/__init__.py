"""`webhook`: who is told of which events, and what became of it.

Sending is the work of a server.
"""
