"""What looking for one text in another costs.

Python's search is linear for long texts. For short ones, and for parts of a few characters, it
compares place by place, which in the worst case takes length times length.
"""

from __future__ import annotations

_SHORT_TEXT = 2_500
_MIDDLE_TEXT = 30_000
_SHORT_PART = 100


def search_cost(text: int, part: int) -> int:
    """In characters read, from the two lengths."""
    if text < _SHORT_TEXT:
        compared = text * part
    elif text < _MIDDLE_TEXT:
        compared = text * min(part, _SHORT_PART)
    else:
        compared = 6 * text
    return text + compared // 16
