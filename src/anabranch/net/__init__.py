"""The compiled form of a definition, and everything that can be told from it alone.

PURE: a net never changes, and nothing here runs one or knows the dialect it came from.
"""
