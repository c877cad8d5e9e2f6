"""Tests of how the catalog of Arca hears of offers."""
