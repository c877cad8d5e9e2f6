"""The reference store: plain dictionaries, gone with the process.

It says what every store must do, and is never clever.
"""
