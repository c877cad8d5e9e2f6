"""Inline Python code, in processes that can be stopped.

The code never runs in the process of the engine.
"""
