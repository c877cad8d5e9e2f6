"""Codes of errors that the shared parts look at."""

from __future__ import annotations

CONSTRAINT = "store_constraint"
