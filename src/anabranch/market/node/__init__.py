"""The node: a host for modules, peers, deliveries and orders.

`node.py` puts the parts together; each part keeps its state in `entities` and offers `Endpoint`s.
"""
