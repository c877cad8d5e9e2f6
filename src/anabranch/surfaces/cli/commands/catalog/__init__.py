"""`register` and `catalog`: definitions that a store keeps under a path.

Files on disk are read by the verbs that take them.
"""
