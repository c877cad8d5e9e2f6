"""Runs the whole suite: parts of it side by side, the pure ones first, what failed once more."""
