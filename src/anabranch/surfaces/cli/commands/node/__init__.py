"""`node`: make a node, serve it, and ask one that runs.

Every action but `init`, `serve` and `check` is a question to the node's HTTP API.
"""
