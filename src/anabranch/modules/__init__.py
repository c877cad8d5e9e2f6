"""Modules that a node hosts: Arca, which buys, and Dator, which sells.

A module orchestrates, discovers and executes; everything signed, sent or settled belongs to the
node that hosts it (`market/node`). It speaks JSON over loopback HTTP, or is an object in tests.
"""
