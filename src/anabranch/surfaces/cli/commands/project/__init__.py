"""Around the definitions of a project: examples to begin with, and what an editor and a shell need.

Definitions themselves are read by the other verbs.
"""
