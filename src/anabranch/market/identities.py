"""Identities: Ed25519 keys written as `did:key`, and what they sign.

participant:did:key:z6Mk…      a role, and the public key in base58
canonical(value)               the bytes that are signed: sorted, compact, UTF-8
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache
from json.encoder import encode_basestring as _quoted
from math import isfinite
from typing import TYPE_CHECKING, Any

from anabranch.errors import AnabranchError, InputError
from anabranch.work.libraries import load

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

ROLES = ("node", "participant", "org")

_IDENTITY = re.compile(r"(node|participant|org):did:key:z([1-9A-HJ-NP-Za-km-z]{40,60})")
_BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_ED25519 = b"\xed\x01"  # the multicodec prefix of such a key
_KEY_BYTES = 32
_DEPTH_MAX = 64
_WHOLE_MAX = 2**53 - 1  # beyond it not every reader knows the difference of one
_WORDS = {None: "null", True: "true", False: "false"}

#: Keys under which a number with a point can be signed: what they hold is a measure, not money.
FRACTIONS = frozenset({"confidence/signal"})


@lru_cache(maxsize=4096)  # the same few parties are in every document
def public_key(name: str) -> bytes:
    """The key in an identity. Raises `InputError` where it is no such identity."""
    match = _IDENTITY.fullmatch(name)
    if match is None:
        raise InputError(f"{name[:80]!r} is not an identity such as participant:did:key:z6Mk…")
    number = 0
    for letter in match[2]:
        number = number * 58 + _BASE58.index(letter)
    data = number.to_bytes((number.bit_length() + 7) // 8, "big")
    if len(data) != len(_ED25519) + _KEY_BYTES or not data.startswith(_ED25519):
        raise InputError(f"{name[:80]!r} holds no Ed25519 key")
    key = data[len(_ED25519) :]
    if identity(match[1], key) != name:  # leading ones: another way to write the same key
        raise InputError(f"{name[:80]!r} is not written the one way that counts")
    return key


def identity(role: str, key: bytes) -> str:
    """The identity of a public key in that role."""
    if role not in ROLES or len(key) != _KEY_BYTES:
        raise InputError(f"an identity is one of {', '.join(ROLES)} with a key of 32 bytes")
    number, letters = int.from_bytes(_ED25519 + key, "big"), []
    while number:
        number, digit = divmod(number, 58)
        letters.append(_BASE58[digit])
    return f"{role}:did:key:z{''.join(reversed(letters))}"


def canonical(value: Any) -> bytes:
    """The one way to write a value (RFC 8785): keys sorted as UTF-16, no blanks, nothing escaped.

    Raises `InputError` for what has no such way, or none that every reader keeps: numbers with a
    point, except under the keys that are for them, whole ones from 2⁵³ on, half characters, depths
    that no document has.
    """
    try:
        return _written(value, 0, "").encode()
    except UnicodeEncodeError:
        raise InputError("a text with half a character cannot be signed") from None


def _written(value: Any, depth: int, key: str) -> str:
    if depth > _DEPTH_MAX:
        raise InputError(f"what nests deeper than {_DEPTH_MAX} cannot be signed")
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, dict):
        return _written_object(value, depth)
    if isinstance(value, list):
        return f"[{','.join([_written(item, depth + 1, key) for item in value])}]"
    if value is None or isinstance(value, bool):
        return _WORDS[value]
    if isinstance(value, int) and abs(value) <= _WHOLE_MAX:
        return int.__repr__(value)
    if isinstance(value, float) and isfinite(value) and key in FRACTIONS:
        return shortest(value)
    raise InputError(f"the number {_cut(value)} cannot be signed; write a whole one, or text")


def _written_object(value: dict[str, Any], depth: int) -> str:
    if not all(isinstance(key, str) for key in value):
        raise InputError("a key that is no text cannot be signed")
    keys = sorted(value)
    if not all(map(str.isascii, keys)):  # beyond U+FFFF the order of UTF-16 is another one
        keys.sort(key=lambda key: key.encode("utf-16-be", "surrogatepass"))
    parts = [f"{_quoted(key)}:{_written(value[key], depth + 1, key)}" for key in keys]
    return f"{{{','.join(parts)}}}"


def _cut(value: Any) -> str:
    many = isinstance(value, int) and value.bit_length() > 200
    return "of more than 60 digits" if many else f"{value!r:.40}"


def shortest(value: float) -> str:
    """A finite number as ECMAScript writes it: the fewest digits that read back as the same."""
    digits, _, exponent = f"{Decimal(repr(abs(value))):e}".partition("e")
    whole, _, rest = digits.partition(".")
    digits = (whole + rest).rstrip("0") or "0"
    point = int(exponent) + 1 if value else 1  # how many digits stand before the point
    sign = "-" if value < 0 else ""
    if 0 < point <= 21:
        padded = digits.ljust(point, "0")
        fraction = f".{padded[point:]}" if len(padded) > point else ""
        return f"{sign}{padded[:point]}{fraction}"
    if -6 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{fraction}e{point - 1:+d}"


class SigningKey:
    """A private key: signs documents, and knows the identities of its public half."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key

    @classmethod
    def from_seed(cls, seed: bytes) -> SigningKey:
        """The key of 32 secret bytes."""
        if len(seed) != _KEY_BYTES:
            raise InputError(f"a seed has {_KEY_BYTES} bytes, not {len(seed)}")
        return cls(_ed25519()[0].Ed25519PrivateKey.from_private_bytes(seed))

    def identity(self, role: str) -> str:
        return identity(role, self._key.public_key().public_bytes_raw())

    def sign(self, document: dict[str, Any], without: tuple[str, ...] = ()) -> dict[str, Any]:
        """The document with its signature; `without` names keys that are not signed."""
        value = self._key.sign(signed_bytes(document, without))
        text = base64.urlsafe_b64encode(value).rstrip(b"=").decode()
        return {**document, "signature": {"alg": "ed25519", "value": text}}


def signed_bytes(document: dict[str, Any], without: tuple[str, ...] = ()) -> bytes:
    left_out = ("signature", *without)
    return canonical({key: value for key, value in document.items() if key not in left_out})


def is_signed_by(document: dict[str, Any], signer: str, without: tuple[str, ...] = ()) -> bool:
    """Whether the signature of the document is that of `signer`; anything odd is a no."""
    require_signatures()
    try:
        data = signed_bytes(document, without)
    except InputError:
        return False
    return is_signature(document.get("signature"), data, signer)


def is_signature(signature: Any, data: bytes, signer: str) -> bool:
    """Whether `signature`, as it stands in a document, is that of `signer` for the bytes."""
    ed25519, invalid = _ed25519()
    if not isinstance(signature, dict) or signature.get("alg") != "ed25519":
        return False
    try:
        value = _unpadded(signature.get("value"))
        key = ed25519.Ed25519PublicKey.from_public_bytes(public_key(signer))
        key.verify(value, data)
    except (InputError, ValueError, TypeError, invalid):
        return False
    return True


def require_signatures() -> None:
    """Raises where the package for signatures is missing."""
    _ed25519()


def _unpadded(text: Any) -> bytes:
    """64 bytes in base64url, written the one way there is."""
    if not isinstance(text, str) or not re.fullmatch(r"[A-Za-z0-9_-]{85}[AQgw]", text):
        raise ValueError("not a signature")
    return base64.urlsafe_b64decode(text + "==")


def _ed25519() -> tuple[Any, type[Exception]]:
    """The part of `cryptography` that is needed, and what it raises for a wrong signature."""
    try:
        ed25519 = load("cryptography.hazmat.primitives.asymmetric.ed25519")
        wrong = load("cryptography.exceptions").InvalidSignature
    except ImportError:
        raise AnabranchError(
            "signatures need the package `cryptography`: pip install 'anabranch[market]'",
            code="missing_extra",
        ) from None
    return ed25519, wrong


class Ed25519Signatures:
    """Checks the signatures of answers, by the keys that identities are."""

    def problem_of(self, key: str) -> str:
        try:
            public_key(key)
            is_signed_by({}, key)  # the package for it is there
        except AnabranchError as error:
            return error.message
        return ""

    def holds(self, document: Mapping[str, Any], key: str) -> bool:
        return is_signed_by(dict(document), key)
