"""`cluster`: the servers of a store, what they own, and draining one.

It changes no run.
"""
