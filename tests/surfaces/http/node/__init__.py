"""Tests of a node over HTTP."""
