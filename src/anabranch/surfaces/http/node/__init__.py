"""The node over HTTP: one process that serves the endpoints of a node on loopback.

What they do is decided in `market/node`; nothing here knows an order from an offer.
"""
