"""Carrying out the calls of rules.

`SigningExecutor` sends transactions, each key at most once: signed, remembered, then sent. A
repetition under the same key sends the same bytes and waits for the same receipt. Where a node
refuses one, it may have it all the same: what is signed next for that key has the same number, so
that one of both can be mined. It gets another number once, where the first was used by others.

`DryRun` sends nothing: it checks a call, notes it and, with a node at hand, asks what would happen.
"""

from __future__ import annotations

import asyncio
import itertools
import re
from collections import deque
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from anabranch.errors import StoreError
from anabranch.work.chain.contracts import (
    call_data,
    chain_id,
    eth_call,
    is_address,
    quantity,
    require_chain,
    revert_of,
)
from anabranch.work.chain.documents import hash_of
from anabranch.work.chain.errors import (
    ChainError,
    NodeMisbehaved,
    NodeRefused,
    NodeUnreachable,
    Reverted,
    WrongChain,
)
from anabranch.work.chain.rpc import JsonRpc
from anabranch.work.chain.sent import Sent, SentCall
from anabranch.work.chain.signer import Signer
from anabranch.work.rule.ports import BadAbi, CallOutcome, ContractCall, ExecutorUnavailable

_KNOWN = re.compile(r"already known|known transaction|already imported|already exists", re.I)
_USED_NONCE = re.compile(r"nonce too low|nonce is too low|nonce has already been used", re.I)
_TIP = 1_000_000_000  # wei per gas, for nodes that give no advice
_NONCE_TRIES = 3  # of one execution
_REPLACED = "\nreplaced"  # under the key with this is one whose nonce others have used
_SEND_EVERY = 10  # looks for a receipt
_NOTED = 1000  # calls a dry run remembers


class ExecutorOptions(msgspec.Struct, frozen=True):
    gas_max: int = 5_000_000  # of one call
    fee_max: int = 10**18  # wei that one call may cost beside its value
    value_wei: int = 0  # that one call may send along, at most
    receipt_seconds: float = 120.0  # how long to wait for a transaction to be mined
    poll_seconds: float = 1.0


def data_for(call: ContractCall) -> bytes:
    """The call data; nothing for a plain transfer. Raises `BadAbi`."""
    if not is_address(call.to):
        raise BadAbi(f"a call cannot go to {call.to[:80]!r}: that is no address")
    if not 0 <= call.value < 1 << 256:
        raise BadAbi(f"{call.value} wei cannot be sent: the value is outside of uint256")
    if call.function:
        return call_data(call.function, call.args)
    if call.args:
        raise BadAbi("arguments are given, but no function; name it or remove them")
    return b""


def _chain_in(scope: str) -> int:
    return int(scope.partition(":")[0])


def _unavailable(error: ChainError | StoreError) -> ExecutorUnavailable:
    if isinstance(error, ChainError) and error.retryable:
        return ExecutorUnavailable(error.what, retryable=True)
    return ExecutorUnavailable(error.message)


class DryRun:
    """Notes calls instead of sending them. `calls` are the last thousand."""

    def __init__(self, rpc: JsonRpc | None = None, *, sender: str = "") -> None:
        self._rpc = rpc
        self._from = {"from": sender} if sender else {}
        self.calls: deque[ContractCall] = deque(maxlen=_NOTED)

    async def execute(self, call: ContractCall) -> CallOutcome:
        data = data_for(call)
        self.calls.append(call)
        if self._rpc is None:
            return CallOutcome(ok=True, dry_run=True)
        more = {**self._from, "value": hex(call.value)}
        if call.gas_limit is not None:
            more["gas"] = hex(call.gas_limit)
        try:
            if call.chain_id:
                await require_chain(self._rpc, call.chain_id)
            await eth_call(self._rpc, call.to, data, more=more)
        except Reverted as error:
            return CallOutcome(ok=False, error=error.message, dry_run=True)
        except ChainError as error:
            raise _unavailable(error) from None
        return CallOutcome(ok=True, dry_run=True)


class SigningExecutor:
    """Sends with one signer over one node. Nonces are handed out one at a time."""

    def __init__(
        self, rpc: JsonRpc, signer: Signer, sent: Sent, options: ExecutorOptions | None = None
    ) -> None:
        self._rpc = rpc
        self._signer = signer
        self._sent = sent
        self.options = options or ExecutorOptions()
        self._turn = asyncio.Lock()
        self._chain = 0
        self._next_nonce = 0
        self._nonce_chain = 0  # of what chain that is

    async def execute(self, call: ContractCall) -> CallOutcome:
        data = data_for(call)
        try:
            return await self._once(call, data)
        except (ChainError, StoreError) as error:
            raise _unavailable(error) from None

    async def _once(self, call: ContractCall, data: bytes) -> CallOutcome:
        scope = f"{await self._chain_of(call)}:{self._signer.address}"
        digest = hash_of(msgspec.json.encode([call.to.lower(), data.hex(), str(call.value)]))
        async with self._turn:
            earlier = await self._sent.find(scope, call.key)
            if earlier is not None and earlier.outcome == "reverted" and call.own_key:
                call = replace(call, key=call.own_key)  # a redrive may do better
                earlier = await self._sent.find(scope, call.key)
            if earlier is None or earlier.refused:
                found: SentCall | CallOutcome = await self._first(
                    call, data, scope, digest, earlier
                )
            else:
                found = earlier
        if isinstance(found, CallOutcome):
            return found
        outcome = replace(await self._outcome(found, call, data), chain_id=_chain_in(scope))
        if outcome.ok and found.digest != digest:
            note = "another call was sent under this key before; this one was not"
            return replace(outcome, error=note)
        return outcome

    async def _chain_of(self, call: ContractCall) -> int:
        """The chain of the session; of one that does not know, the first that the node was of."""
        if call.chain_id:
            return call.chain_id
        self._chain = self._chain or await chain_id(self._rpc)
        return self._chain

    # -- sending -----------------------------------------------------------------------------

    async def _first(
        self, call: ContractCall, data: bytes, scope: str, digest: str, refused: SentCall | None
    ) -> SentCall | CallOutcome:
        """Sign, remember, send. A call that would revert ends here, unsent."""
        chain = _chain_in(scope)
        self._require_value_allowed(call)
        await require_chain(self._rpc, chain)
        if refused is not None and await self._is_mined(refused):
            return refused
        if self._nonce_chain != chain:
            self._nonce_chain, self._next_nonce = chain, 0
        basics = {"to": call.to, "data": "0x" + data.hex(), "value": call.value}
        try:
            gas = await self._gas(call, basics)
        except Reverted as error:
            return CallOutcome(ok=False, error=error.message)
        fees = await self._fees()
        self._require_affordable(gas, fees)
        for attempt in range(1, _NONCE_TRIES + 1):
            nonce = await self._nonce_after(refused)
            signed = await self._signer.sign(
                {**basics, **fees, "gas": gas, "nonce": nonce, "chainId": chain}
            )
            record = SentCall(scope, call.key, signed.tx, nonce, signed.raw, digest)
            if (quicker := await self._written(record, refused)) is not None:
                return quicker
            try:
                await self._send(record)
            except (NodeUnreachable, NodeMisbehaved):
                pass  # it may have arrived; the wait for the receipt sends it again
            except WrongChain:  # which is asked before it is sent
                await self._unwritten(record, refused)
                raise
            except NodeRefused as error:
                await self._sent.refuse(record, error.said or "refused")
                self._next_nonce = 0
                if not _USED_NONCE.search(error.said) or attempt == _NONCE_TRIES:
                    raise
                refused = replace(record, error=error.said)
                if await self._is_mined(record):
                    break
                continue
            self._next_nonce = nonce + 1
            break
        return record

    async def _written(self, record: SentCall, refused: SentCall | None) -> SentCall | None:
        """What another process has written under the same key; None where this is written."""
        if refused is None:
            return await self._sent.remember(record)
        if await self._sent.replace(refused, record):
            return None
        return await self._sent.find(record.scope, record.key) or refused

    async def _unwritten(self, record: SentCall, refused: SentCall | None) -> None:
        if refused is None:
            await self._sent.forget(record)
        elif await self._sent.replace(record, refused):
            await self._sent.refuse(refused, refused.error)

    async def _is_mined(self, record: SentCall) -> bool:
        """Whether it was taken, whatever the node has said."""
        try:
            receipt = await self._rpc.call("eth_getTransactionReceipt", record.tx)
        except NodeRefused:
            return False
        return isinstance(receipt, dict)

    async def _nonce_after(self, refused: SentCall | None) -> int:
        """That of the one before, as long as nobody has used it: a node that refuses one and keeps
        it can have one of both mined. Another one where it was used by others, and once: a node
        that says so and lies gets no third."""
        if refused is None:
            return await self._nonce()
        if await self._counted() <= refused.nonce:
            return refused.nonce
        if await self._sent.remember(replace(refused, key=refused.key + _REPLACED)) is not None:
            raise ExecutorUnavailable(
                f"the node refused {refused.tx} ({refused.error}), as it refused one with another "
                "nonce before; nothing more is signed for this call: look whether one of them was "
                "mined, and whether the node can be trusted"
            )
        return await self._nonce()

    async def _send(self, record: SentCall) -> None:
        """Hand it over once, without hidden repetitions that would blur what a refusal means."""
        await require_chain(self._rpc, _chain_in(record.scope))
        try:
            await self._rpc.call("eth_sendRawTransaction", "0x" + record.raw.hex(), attempts=1)
        except NodeRefused as error:
            if not _KNOWN.search(error.said):
                raise

    async def _gas(self, call: ContractCall, basics: Mapping[str, Any]) -> int:
        gas = call.gas_limit
        if gas is None:
            question = {**basics, "value": hex(call.value), "from": self._signer.address}
            try:
                result = await self._rpc.call("eth_estimateGas", question)
            except NodeRefused as error:
                raise revert_of(error, call.to) or error from None
            gas = quantity(self._rpc, result, "eth_estimateGas")
        most = self.options.gas_max
        if gas > most:
            raise ExecutorUnavailable(
                f"the call needs {gas:,} gas, more than {most:,} (setting chain_gas_max); "
                "nothing was sent"
            )
        return gas if call.gas_limit is not None else min(gas * 6 // 5, most)

    async def _fees(self) -> dict[str, int]:
        block = await self._rpc.call("eth_getBlockByNumber", "latest", False)
        base = block.get("baseFeePerGas") if isinstance(block, dict) else None
        if base is None:
            price = await self._rpc.call("eth_gasPrice")
            return {"gasPrice": quantity(self._rpc, price, "eth_gasPrice")}
        try:
            advice = await self._rpc.call("eth_maxPriorityFeePerGas")
            tip = quantity(self._rpc, advice, "eth_maxPriorityFeePerGas")
        except NodeRefused:
            tip = _TIP
        ceiling = 2 * quantity(self._rpc, base, "eth_getBlockByNumber") + tip
        return {"maxFeePerGas": ceiling, "maxPriorityFeePerGas": tip}

    def _require_affordable(self, gas: int, fees: Mapping[str, int]) -> None:
        """The node says what gas costs, and whoever mines a block gets it: the node, perhaps."""
        price = max(fees.values())
        most = self.options.fee_max
        if gas * price > most:
            raise ExecutorUnavailable(
                f"the call may cost {gas * price:,} wei ({gas:,} gas at {price:,} wei, as the node "
                f"advises), more than {most:,} (setting chain_fee_max); nothing was sent"
            )

    def _require_value_allowed(self, call: ContractCall) -> None:
        """The wallet is the operator's, and rules are anybody's."""
        most = self.options.value_wei
        if call.value > most:
            raise ExecutorUnavailable(
                f"the call sends {call.value:,} wei along, more than {most:,} (setting "
                "chain_value_wei); nothing was sent"
            )

    async def _nonce(self) -> int:
        """The next one: what the node counts, or more when it has not yet seen our last."""
        return max(await self._counted(), self._next_nonce)

    async def _counted(self) -> int:
        method = "eth_getTransactionCount"
        count = await self._rpc.call(method, self._signer.address, "pending")
        return quantity(self._rpc, count, method)

    # -- waiting -----------------------------------------------------------------------------

    async def _outcome(self, record: SentCall, call: ContractCall, data: bytes) -> CallOutcome:
        if record.outcome:
            return CallOutcome(record.outcome == "ok", record.tx, record.error)
        away: list[NodeUnreachable] = []
        try:
            async with asyncio.timeout(self.options.receipt_seconds):
                receipt = await self._receipt(record, away)
        except TimeoutError:
            self._next_nonce = 0  # what stands in nobody's queue must not hold up the next ones
            if away:
                raise away[0] from None
            raise ExecutorUnavailable(
                f"transaction {record.tx} was sent, but is not mined after "
                f"{self.options.receipt_seconds:g} s (setting chain_receipt_seconds); "
                "it may still be"
            ) from None
        if quantity(self._rpc, receipt.get("status"), "eth_getTransactionReceipt"):
            await self._sent.settle(record, "ok", "")
            return CallOutcome(True, record.tx)
        error = await self._why(call, data, receipt)
        await self._sent.settle(record, "reverted", error)
        return CallOutcome(False, record.tx, error)

    async def _receipt(self, record: SentCall, away: list[NodeUnreachable]) -> Mapping[str, Any]:
        """Ask until it is there; a node that does not have the transaction gets it again. `away`
        holds why nobody could be asked the last time."""
        for turn in itertools.count():
            try:
                receipt = await self._rpc.call("eth_getTransactionReceipt", record.tx)
                if isinstance(receipt, dict):
                    return receipt
                if turn % _SEND_EVERY == 0:
                    await self._send(record)
                away.clear()
            except NodeUnreachable as error:
                away[:] = [error]
            except NodeRefused:
                pass  # a refusal now says nothing: it may be mined, or stand in another queue
            await asyncio.sleep(self.options.poll_seconds)
        raise AssertionError("counting never ends")

    async def _why(self, call: ContractCall, data: bytes, receipt: Mapping[str, Any]) -> str:
        """The reason of a revert: the call asked again at its block. Only for the message."""
        more = {"from": self._signer.address, "value": hex(call.value)}
        block = receipt.get("blockNumber")
        try:
            await eth_call(self._rpc, call.to, data, str(block or "latest"), more)
        except ChainError as error:
            return error.message
        return f"the contract {call.to} refused the call without a reason"
