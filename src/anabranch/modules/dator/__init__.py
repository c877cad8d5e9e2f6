"""Dator: publishes the offers of a node and does the work that is ordered from them.

It signs nothing and sends nothing itself: the host does.
"""
