"""Tests of the marketplace for tests."""
