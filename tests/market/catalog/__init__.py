"""Tests of the catalog of offers."""
