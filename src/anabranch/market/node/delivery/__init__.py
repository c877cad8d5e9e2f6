"""Artifacts on their way to other nodes, and those that arrive here.

A *delivery* is what this node sends: an envelope, a plan of stages with targets, a ledger entry. An
*admission* is what it takes in: an artifact that an acceptor was offered, once.
"""
