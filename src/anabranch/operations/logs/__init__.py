"""What work printed: read line by line, and taken from workers.

The log of events has its read models in `operations.read`; this is beside it.
"""
