"""Somebody with a key who signs permits, as a wallet does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from anabranch.work.chain.permits import FIELDS, OPTIONAL, PRECOMPILE
from anabranch.work.chain.signer import eth_account

SOON = 4_000_000_000  # seconds; far from now
CHAIN = 1643


@dataclass(frozen=True)
class Wallet:
    key: str

    @property
    def address(self) -> str:
        return str(eth_account().Account.from_key(self.key).address).lower()

    def sign(
        self, kind: str, message: Mapping[str, Any], hash_type: str = "bytes32", **domain: Any
    ) -> dict[str, Any]:
        """A permit; `domain` replaces what the domain usually says."""
        types = {name: options[0] for name, options in FIELDS[kind].items()}
        if "ostcHash" in types:
            types["ostcHash"] = hash_type
        given = {"from": self.address, "expiry": SOON, **message}
        more = OPTIONAL.get(kind, {})
        types |= {name: options[0] for name, options in more.items() if name in given}
        place = {"name": "XDaLa", "version": "1", "chainId": CHAIN}
        if kind == "SessionPermit":
            place["name"] = "XDaLa SessionPermit"
        elif kind.startswith("Control"):
            place["verifyingContract"] = PRECOMPILE
        place |= domain
        fields = [{"name": name, "type": type_name} for name, type_name in types.items()]
        values = {name: given[name] for name in types}
        package = eth_account()
        signed = package.Account.sign_message(
            package.messages.encode_typed_data(
                place,
                {kind: fields},
                {
                    name: bytes.fromhex(value[2:]) if types[name] == "bytes32" else value
                    for name, value in values.items()
                },
            ),
            self.key,
        )
        return {
            "domain": place,
            "primaryType": kind,
            "types": {kind: fields},
            "message": values,
            "signature": "0x" + signed.signature.hex().removeprefix("0x"),
        }


ANN, BOB, EVE = (Wallet("0x" + digit * 64) for digit in "123")
