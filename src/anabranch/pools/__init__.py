"""Pools whose jobs a compute cluster does: Dask or Ray schedule them, the log remembers them.

A dispatcher in the engine claims jobs of its pool under a lease, like any worker, and gives them to
a backend. What runs on the cluster is `worker_entry`: the performers of a worker, without a store.
"""
