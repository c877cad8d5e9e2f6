"""The work of loops: shards, checkpoints, collections, and the results of items in order.

How many shards are out, and what comes next, is the kernel's.
"""
