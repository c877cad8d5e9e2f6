"""Values on their way in and out of work: JSON, text, results by reference.

Every value passes the same checks before it is recorded.
"""
