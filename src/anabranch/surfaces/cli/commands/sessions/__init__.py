"""`session`: orchestrations by owner and number, and their permits.

The rules of a session are the kernel's.
"""
