"""Tests of the pages of a node."""
