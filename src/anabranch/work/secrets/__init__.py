"""Secrets where work is done: keychains, credentials, and the redaction of what work says.

Nothing here writes a secret down.
"""
