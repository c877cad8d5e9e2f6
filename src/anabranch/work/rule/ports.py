"""What a rule needs from the world: its text, a chain to read, somebody to carry out calls.

Three narrow ports. A chain implements all of them; without one there are stand-ins at the end of
this module: reads fail softly, and calls are recorded instead of sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from anabranch.errors import AnabranchError


class ChainUnavailable(AnabranchError):
    """Something of the chain that a step needs is not there. `retryable`: it may be there later,
    and the step is put off till then."""

    def __init__(self, message: str, *, retryable: bool = False) -> None:
        super().__init__(message)
        self.retryable = retryable


class RuleUnavailable(ChainUnavailable):
    """The text of a rule could not be had."""

    code = "rule_unavailable"


class OtherChain(ChainUnavailable):
    """The node belongs to another chain than the session."""

    code = "other_chain"

    def __init__(self, message: str) -> None:
        super().__init__(message, retryable=True)  # whoever runs the engine can name another node


class ReadFailed(AnabranchError):
    """A read gave nothing: reverted, not reached, unknown endpoint. The defaults take over."""

    code = "read_failed"


class BadAbi(AnabranchError):
    """A signature that cannot be read, or an argument that does not fit its type. A hard error."""

    code = "bad_abi"


class ExecutorUnavailable(ChainUnavailable):
    """The call could not be sent at all. A hard error, unless it may be sent later."""

    code = "executor_unavailable"


class DecryptionFailed(AnabranchError):
    """The text of an encrypted rule could not be opened."""

    code = "decryption_failed"


class RuleText(msgspec.Struct, frozen=True):
    """A rule as it was found."""

    text: str
    hash: str  # 0x + keccak256 of the raw bytes
    origin: str  # "bundle", "folder", "chain@<block>"


class ContractCall(msgspec.Struct, frozen=True):
    """An `execution` with every value resolved."""

    to: str
    function: str  # "" is a plain value transfer
    args: tuple[Any, ...]
    value: int  # wei
    gas_limit: int | None
    key: str  # idempotency key "session:iteration"
    chain_id: int = 0  # the chain of the session; 0 where that is not known
    own_key: str = ""  # of a session that redrives another: where the call reverted under `key`


class CallOutcome(msgspec.Struct, frozen=True):
    ok: bool  # False: the call reverted, and the step becomes invalid
    tx: str = ""
    error: str = ""
    dry_run: bool = False
    chain_id: int = 0  # where it was sent


class RuleSource(Protocol):
    async def rule(self, address: str) -> RuleText:
        """Raises `RuleUnavailable`."""
        ...


class ChainIdentity(Protocol):
    async def chain_id(self, *, anew: bool = False) -> int:
        """The chain that rules come from and reads go to, as it was found first; `anew` asks
        again. Raises `ChainUnavailable`."""
        ...


class ContractReader(Protocol):
    async def read(
        self,
        *,
        to: str,
        function: str,
        args: Sequence[Any],
        saved_types: Mapping[int, str],
        rpc: str | None,
    ) -> Sequence[Any]:
        """The returned values in order. Raises `ReadFailed` (soft) or `BadAbi` (hard)."""
        ...


class ContractExecutor(Protocol):
    async def execute(self, call: ContractCall) -> CallOutcome:
        """Raises `ExecutorUnavailable`."""
        ...


class Decryptor(Protocol):
    async def decrypt(self, address: str, text: str) -> str:
        """The plain rule of an `XGR1.` text. Raises `DecryptionFailed`."""
        ...


class LogEncryptor(Protocol):
    async def encrypt(self, log: Mapping[str, Any], readers: Sequence[Mapping[str, Any]]) -> str:
        """The log of a step as an `XGR1.` text that only `readers` can open."""
        ...


class NoChain:
    """The reader of an engine without a chain."""

    async def read(
        self,
        *,
        to: str,
        function: str,
        args: Sequence[Any],  # noqa: ARG002 - the port's signature
        saved_types: Mapping[int, str],  # noqa: ARG002
        rpc: str | None,  # noqa: ARG002
    ) -> Sequence[Any]:
        raise ReadFailed(f"no chain is configured, so {function} of {to} cannot be read")


class RecordedCalls:
    """The executor of an engine without a chain: a call is noted in the receipt, never sent."""

    async def execute(self, call: ContractCall) -> CallOutcome:  # noqa: ARG002
        return CallOutcome(ok=True, dry_run=True)
