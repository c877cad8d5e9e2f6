"""The host's registry of offers: its own, and those that it observed at other nodes.

`part.py` puts it together: `drafts` make offers of this node, `registry` keeps what is known and
decides about relays, `trust` says whose offers may be seen, `catalog` lists them, `messages` talks
about them with peers. Nothing that a module or a peer says about trust counts.
"""
