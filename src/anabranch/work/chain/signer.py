"""Who signs transactions.

A signer is anything with an address and `sign`: a key in memory, a remote signing service, a
hardware device. The one here holds a private key. It needs the package eth-account.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any, Protocol

import msgspec

from anabranch.work.chain.errors import SignerUnavailable
from anabranch.work.libraries import load, one_at_a_time

MISSING = "signing needs the package eth-account: pip install 'anabranch[evm]'"
_KEY = re.compile(r"(?:0x)?[0-9a-fA-F]{64}")


def eth_account() -> ModuleType:
    """The package, or `ImportError`. Something it imports raises the recursion limit to 100,000 for
    the whole process; nested input would then overflow the stack instead of being refused."""
    with one_at_a_time:
        limit = sys.getrecursionlimit()
        try:
            load("eth_account.messages")
            package: ModuleType = load("eth_account")
        finally:
            sys.setrecursionlimit(limit)
    return package


class SignedTransaction(msgspec.Struct, frozen=True):
    raw: bytes
    tx: str  # its hash, known before it is sent


class Signer(Protocol):
    @property
    def address(self) -> str:
        """The sender, in lower case."""
        ...

    async def sign(self, transaction: Mapping[str, Any]) -> SignedTransaction:
        """Sign `{nonce, chainId, to, data, value, gas, gasPrice | maxFeePerGas …}`."""
        ...


class LocalSigner:
    """A private key in memory. It appears in no text that this object produces."""

    def __init__(self, key: str) -> None:
        try:
            account = eth_account().Account
        except ImportError:
            raise SignerUnavailable(MISSING) from None
        if not _KEY.fullmatch(key):
            raise SignerUnavailable("the private key is not 64 hexadecimal digits")
        try:
            self._account = account.from_key(key)
        except Exception:  # whatever the library says about it may repeat the key
            raise SignerUnavailable("the private key is not one of this curve") from None

    @property
    def address(self) -> str:
        return str(self._account.address).lower()

    def __repr__(self) -> str:
        return f"<LocalSigner {self.address}>"

    async def sign(self, transaction: Mapping[str, Any]) -> SignedTransaction:
        to_checksum_address = load("eth_utils.address").to_checksum_address
        signed = self._account.sign_transaction(
            {**transaction, "to": to_checksum_address(transaction["to"])}
        )
        return SignedTransaction(bytes(signed.raw_transaction), "0x" + bytes(signed.hash).hex())
