"""Values that are kept beside the log: large results, sealed secrets, and which run may read what.

It knows payloads by their hash and nothing about the work that made them.
"""
