"""Tests of what a node does with its modules."""
