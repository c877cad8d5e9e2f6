"""What may be searched for in a list of runs."""

from __future__ import annotations

from anabranch.errors import InputError

LETTERS_MAX = 200
WORDS_MAX = 8


def checked_search(text: str) -> str:
    """The words, one space between them; raises `InputError` for what no list could be asked."""
    if len(text) > LETTERS_MAX:
        raise InputError(
            f"a search has at most {LETTERS_MAX} characters, not {len(text):,}", code="bad_search"
        )
    words = text.split()
    if len(words) > WORDS_MAX:
        raise InputError(
            f"a search has at most {WORDS_MAX} words, not {len(words)}", code="bad_search"
        )
    if not all(word.isprintable() for word in words):
        said = "a search is plain text; this one has control characters"
        raise InputError(said, code="bad_search")
    return " ".join(words)
