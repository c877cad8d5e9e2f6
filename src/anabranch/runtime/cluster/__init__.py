"""One engine among several on a shared store: the partitions it owns, and the runs of the others.

It decides who owns what and where a stimulus goes; what the stimulus does is decided elsewhere.
"""
