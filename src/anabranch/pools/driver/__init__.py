"""Connections to clusters, each in a process of its own: the driver of a pool.

backend.py      the engine's side: the port `pools/backend.py`, which starts drivers one by one
wire.py         what the two say to each other
child.py        the driver's side of that
unpickling.py   what pickles of a cluster may name in a driver

A driver has none of the engine's secrets; what it says is checked like what its cluster says.
"""
