"""Arca: runs workflow definitions as a module of a node, and keeps a catalog of offers.

The workflow engine is the one that `anabranch run` has. Its four kinds of work for Arca definitions
(`targets`, `dispatch`, `request`, `capability`) are done through the host here: see `work/`.
"""
