"""Tests of the commands for a node."""
