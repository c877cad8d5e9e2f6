"""The tokens of a CEL expression."""

from __future__ import annotations

import re
from typing import Any, Literal

import msgspec

from anabranch.expressions.cel.values import (
    INT64,
    INT256,
    UINT64,
    UINT256,
    CelSyntaxError,
    Int256,
    UInt,
    Uint256,
)

Sort = Literal["literal", "name", "symbol", "end"]


class LexerToken(msgspec.Struct, frozen=True):
    sort: Sort
    value: Any
    column: int


_TOKEN = re.compile(
    r"""(?P<blank>[ \t\r\n\f]+)
    |(?P<text>[rRbB]{0,2}(?:\"\"\"|'''|"|'))
    |(?P<double>(?:[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?))
    |(?P<whole>0[xX][0-9a-fA-F]+|[0-9]+)(?P<unsigned>[uU]?)
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<symbol>==|!=|<=|>=|&&|\|\||[-+*/%<>!?:.,()\[\]{}])""",
    re.VERBOSE,
)
_WORDS = {"true": True, "false": False, "null": None}
_ESCAPES = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    "\\": "\\", "'": "'", '"': '"', "`": "`", "?": "?",
}  # fmt: skip
_ESCAPE = re.compile(
    r"\\(?:[xX]([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|(.)|$)",
    re.DOTALL,
)


def tokens(source: str) -> list[LexerToken]:
    """All tokens, the end included."""
    found: list[LexerToken] = []
    at = 0
    while at < len(source):
        match = _TOKEN.match(source, at)
        if match is None:
            raise _unreadable(source, at)
        column = at + 1
        at = match.end()
        match match.lastgroup:
            case "blank":
                continue
            case "text":
                value, at = _text(source, match.group(), at, column)
                found.append(LexerToken("literal", value, column))
            case "double":
                found.append(LexerToken("literal", _double(match.group(), column), column))
            case "unsigned":
                found.append(LexerToken("literal", _whole(match, column), column))
            case "name":
                found.append(_word(match.group(), column))
            case _:
                found.append(LexerToken("symbol", match.group(), column))
        _check_gap(source, match, found[-1])
    found.append(LexerToken("end", "", len(source) + 1))
    return found


def _unreadable(source: str, at: int) -> CelSyntaxError:
    character = source[at]
    hints = {"=": "; write `==` to compare", "&": "; write `&&`", "|": "; write `||`"}
    return CelSyntaxError(f"{character!r} does not belong here{hints.get(character, '')}", at + 1)


def _check_gap(source: str, match: re.Match[str], token: LexerToken) -> None:
    """`12abc` is neither a number nor a name."""
    number = match.lastgroup in ("unsigned", "double")
    if number and source[match.end() : match.end() + 1].isidentifier():
        raise CelSyntaxError("a number runs into a name", token.column)


def _word(word: str, column: int) -> LexerToken:
    if word in _WORDS:
        return LexerToken("literal", _WORDS[word], column)
    return LexerToken("symbol" if word == "in" else "name", word, column)


def _double(text: str, column: int) -> float:
    number = float(text)
    if number == float("inf"):
        raise CelSyntaxError("the number is too large", column)
    return number


def _whole(match: re.Match[str], column: int) -> int:
    text = match.group("whole")
    number = int(text, 16) if text[:2] in ("0x", "0X") else int(text)
    if match.group("unsigned"):
        if number > UINT64[1]:
            raise CelSyntaxError("the number does not fit uint", column)
        return UInt(number)
    if number <= INT64[1]:
        return number
    if number <= INT256[1]:
        return Int256(number)
    if number <= UINT256[1]:
        return Uint256(number)
    raise CelSyntaxError("the number does not fit 256 bits", column)


def _text(source: str, opening: str, at: int, column: int) -> tuple[str | bytes, int]:
    quote = opening.lstrip("rRbB")
    prefix = opening[: len(opening) - len(quote)].lower()
    if prefix in ("rr", "bb"):
        raise CelSyntaxError(f"{prefix!r} is no prefix of a text", column)
    start = at
    while not source.startswith(quote, at):
        if at >= len(source) or (source[at] == "\n" and len(quote) == 1):
            raise CelSyntaxError("the text is not closed", column)
        at += 2 if source[at] == "\\" and "r" not in prefix else 1
    body = source[start:at]
    if at > len(source) or not source.startswith(quote, at):
        raise CelSyntaxError("the text is not closed", column)
    at += len(quote)
    if "b" in prefix:
        return _bytes(body, "r" in prefix, column), at
    return body if "r" in prefix else unescaped(body, column), at


def unescaped(body: str, column: int = 1) -> str:
    """The text between two quotes with its escapes resolved."""
    if "\\" not in body:
        return body

    def resolve(match: re.Match[str]) -> str:
        *codes, octal, letter = match.groups()
        if letter in _ESCAPES:
            return _ESCAPES[letter]
        digits = next((code for code in codes if code), None)
        number = int(digits, 16) if digits else int(octal, 8) if octal else -1
        if not 0 <= number <= 0x10FFFF or 0xD800 <= number <= 0xDFFF:
            raise CelSyntaxError(f"{match.group()!r} is no escape", column)
        return chr(number)

    return _ESCAPE.sub(resolve, body)


def _bytes(body: str, raw: bool, column: int) -> bytes:
    if raw or "\\" not in body:
        return body.encode()
    parts = bytearray()
    at = 0
    for match in _ESCAPE.finditer(body):
        parts += body[at : match.start()].encode()
        hexadecimal, _, _, octal, _ = match.groups()
        if hexadecimal or octal:
            number = int(hexadecimal, 16) if hexadecimal else int(octal, 8)
            parts.append(number)
        else:
            parts += unescaped(match.group(), column).encode()
        at = match.end()
    return bytes(parts + body[at:].encode())
