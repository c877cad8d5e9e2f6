"""Tests of the registry of offers."""
