"""Who signs transactions.

A signer is anything with an address and `sign`: a key in memory, a remote signing service, a
hardware device. The one here holds a private key. It needs the package eth-account.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from anabranch.work.chain.errors import SignerUnavailable

MISSING = "signing needs the package eth-account: pip install 'anabranch[evm]'"
_KEY = re.compile(r"(?:0x)?[0-9a-fA-F]{64}")


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
            from eth_account import Account
        except ImportError:
            raise SignerUnavailable(MISSING) from None
        if not _KEY.fullmatch(key):
            raise SignerUnavailable("the private key is not 64 hexadecimal digits")
        try:
            self._account = Account.from_key(key)
        except Exception:  # whatever the library says about it may repeat the key
            raise SignerUnavailable("the private key is not one of this curve") from None

    @property
    def address(self) -> str:
        return str(self._account.address).lower()

    def __repr__(self) -> str:
        return f"<LocalSigner {self.address}>"

    async def sign(self, transaction: Mapping[str, Any]) -> SignedTransaction:
        from eth_utils.address import to_checksum_address

        signed = self._account.sign_transaction(
            {**transaction, "to": to_checksum_address(transaction["to"])}
        )
        return SignedTransaction(bytes(signed.raw_transaction), "0x" + bytes(signed.hash).hex())
