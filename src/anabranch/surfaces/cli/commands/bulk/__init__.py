"""`purge` and `bulk`: one verb over many runs.

The verbs that act on one run are in `control`.
"""
