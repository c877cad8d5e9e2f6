"""Text of replies: which charsets are decoded, by one table.

Python knows about a hundred codecs, and some of them take time that grows with the square of the
text: 1 MB of `punycode` keeps the event loop for more than a minute. A server picks the charset of
its reply, so only those that web servers really send are decoded, each at the speed of memory.
"""

from __future__ import annotations

#: What servers call them, and the codecs of Python.
CODECS = {
    "utf-8": "utf-8", "utf8": "utf-8",
    "us-ascii": "ascii", "ascii": "ascii", "ansi_x3.4-1968": "ascii",
    "iso-8859-1": "latin-1", "iso8859-1": "latin-1", "iso_8859-1": "latin-1",
    "latin-1": "latin-1", "latin1": "latin-1", "l1": "latin-1",
    "windows-1252": "cp1252", "cp1252": "cp1252", "cp-1252": "cp1252", "x-cp1252": "cp1252",
    "utf-16": "utf-16", "utf16": "utf-16",
    "utf-16le": "utf-16-le", "utf-16-le": "utf-16-le",
    "utf-16be": "utf-16-be", "utf-16-be": "utf-16-be",
    "utf-32": "utf-32", "utf32": "utf-32",
    "utf-32le": "utf-32-le", "utf-32-le": "utf-32-le",
    "utf-32be": "utf-32-be", "utf-32-be": "utf-32-be",
}  # fmt: skip


class UnknownCharset(ValueError):
    """The message names the charset and those that are decoded."""

    def __init__(self, charset: str) -> None:
        super().__init__(
            f"its charset is {charset!r:.60}, and only UTF-8, UTF-16, UTF-32, ISO-8859-1, "
            "windows-1252 and ASCII are decoded"
        )


def codec_of(charset: str) -> str:
    """The codec for a charset, or `UnknownCharset`."""
    codec = CODECS.get(charset.strip().lower())
    if codec is None:
        raise UnknownCharset(charset)
    return codec


def decoded(content: bytes, charset: str, errors: str = "strict") -> str:
    """The text in this charset, without a byte order mark."""
    return content.decode(codec_of(charset), errors).removeprefix("\ufeff")
