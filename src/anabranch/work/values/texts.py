"""Text that is safe to record: valid unicode, and of a length somebody may read.

Only the standard library is used here; the Python worker process loads this file too.
"""

from __future__ import annotations

LIMIT = 4_000


def clip(text: str, limit: int = LIMIT) -> str:
    """The beginning of a text, with a note of what is missing."""
    clean = text[: limit + 1].encode("utf-8", "replace").decode()
    if len(clean) <= limit:
        return clean
    return f"{clean[:limit]} … (cut: {len(text):,} characters in all)"
