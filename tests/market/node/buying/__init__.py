"""Tests of orders that the operator places."""
