"""Tests of what modules can ask their host to keep."""
