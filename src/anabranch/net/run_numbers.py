"""The number of a run, for those who keep runs in a column of whole numbers."""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256


@lru_cache(maxsize=1024)
def run_number(run: str) -> int:
    """A run as a whole number above zero that fits into 64 bits with a sign: the same for the same
    run, wherever and whenever it is asked for. Tables of playbooks have such a column."""
    digest = sha256(run.encode()).digest()
    return int.from_bytes(digest[:8], "big") % (2**63 - 1) + 1
