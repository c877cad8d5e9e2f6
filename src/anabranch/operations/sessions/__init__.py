"""Orchestrations in the words of the XRC standards: sessions by owner and number, grants, and the
methods of the JSON-RPC interface.

The rules of a session are the kernel's; here they are asked about and told.
"""
