"""A node on the loopback: real JSON-RPC over real HTTP, a real EVM behind it."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from eth_utils.address import to_checksum_address

from anabranch.work.chain.rpc import RpcOptions
from hangs import HANG_SECONDS

from ..support import server
from .contracts import refusal

QUICK = RpcOptions(timeout_seconds=HANG_SECONDS, pause_seconds=0.001)
KEY = "0x" + 31 * "00" + "01"  # the first account of eth-tester
SENDER = "0x7e5f4552091a69125d5dfcb7b8c2659029395bdf"


class Refusal(Exception):
    def __init__(self, number: int, message: str, data: str | None = None) -> None:
        super().__init__(message)
        self.error = {"code": number, "message": message, **({"data": data} if data else {})}


class Evm:
    """The chain. `asked` lists the calls of JSON-RPC it has answered."""

    def __init__(self) -> None:
        # Imported here: it takes a second, which every process that collects tests would pay.
        limit = sys.getrecursionlimit()
        from eth_tester import EthereumTester, PyEVMBackend, exceptions  # type: ignore[import-untyped]

        self.tester: Any = EthereumTester(PyEVMBackend())
        sys.setrecursionlimit(limit)  # py-evm raises it, for every other test of the process too
        self.failed, self.not_found = exceptions.TransactionFailed, exceptions.TransactionNotFound
        self.asked: list[tuple[str, list[Any]]] = []
        self.before: Callable[[str], None] = lambda _method: None

    def deploy(self, code: bytes) -> str:
        sender = self.tester.get_accounts()[0]
        tx = self.tester.send_transaction(
            {"from": sender, "data": "0x" + code.hex(), "gas": 20_000_000, "value": 0}
        )
        receipt = self.tester.get_transaction_receipt(tx)
        assert receipt["status"] == 1, "the contract was not deployed"
        return str(receipt["contract_address"]).lower()

    def send(self, to: str, data: bytes) -> None:
        sender = self.tester.get_accounts()[1]
        self.tester.send_transaction(
            {"from": sender, "to": checksum(to), "data": "0x" + data.hex(), "gas": 200_000}
        )

    @property
    def block(self) -> int:
        return int(self.tester.get_block_by_number("latest")["number"])

    def methods(self) -> list[str]:
        return [method for method, _ in self.asked]

    @asynccontextmanager
    async def served(self) -> AsyncIterator[str]:
        async def handle(request: web.BaseRequest) -> web.StreamResponse:
            return web.json_response(self.answer(await request.json()))

        async with server(handle) as url:
            yield url

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        method, params = question["method"], question["params"]
        self.asked.append((method, params))
        self.before(method)
        said = {"jsonrpc": "2.0", "id": question["id"]}
        try:
            return {**said, "result": getattr(self, method)(*params)}
        except Refusal as refused:
            return {**said, "error": refused.error}
        except self.failed as failed:
            reason = str(failed)
            data = refusal(reason) if reason and not reason.startswith("b'") else b""
            words = f"execution reverted: {reason}" if data else "execution reverted"
            return {**said, "error": {"code": 3, "message": words, "data": "0x" + data.hex()}}

    # -- methods, by their names in JSON-RPC ---------------------------------------------------

    def eth_chainId(self) -> str:  # noqa: N802
        return hex(self.tester.backend.chain.chain_id)

    def eth_blockNumber(self) -> str:  # noqa: N802
        return hex(self.block)

    def eth_getCode(self, where: str, tag: str) -> str:  # noqa: N802
        return str(self.tester.get_code(checksum(where), _tag(tag)))

    def eth_call(self, call: dict[str, str], tag: str) -> str:
        return str(self.tester.call(_call(call), _tag(tag)))

    def eth_estimateGas(self, call: dict[str, str]) -> str:  # noqa: N802
        self.tester.call(_call(call))  # it says why, where estimating does not
        return hex(self.tester.estimate_gas(_call(call)))

    def eth_getTransactionCount(self, who: str, _tag: str) -> str:  # noqa: N802
        return hex(self.tester.get_nonce(checksum(who)))

    def eth_getBlockByNumber(self, _tag: str, _full: bool) -> dict[str, Any]:  # noqa: N802
        block = self.tester.get_block_by_number("latest")
        return {"number": hex(block["number"]), "baseFeePerGas": hex(block["base_fee_per_gas"])}

    def eth_maxPriorityFeePerGas(self) -> str:  # noqa: N802
        return hex(10**9)

    def eth_sendRawTransaction(self, raw: str) -> str:  # noqa: N802
        return str(self.tester.send_raw_transaction(raw))

    def eth_getTransactionReceipt(self, tx: str) -> dict[str, Any] | None:  # noqa: N802
        try:
            receipt = self.tester.get_transaction_receipt(tx)
        except self.not_found:
            return None
        if receipt["block_number"] is None:
            return None
        return {
            "transactionHash": tx,
            "status": hex(receipt["status"]),
            "blockNumber": hex(receipt["block_number"]),
        }


def checksum(address: str) -> str:
    return str(to_checksum_address(address))


def _tag(tag: str) -> int | str:
    return int(tag, 16) if tag.startswith("0x") else tag


def _call(call: dict[str, str]) -> dict[str, Any]:
    value = call.get("value", 0)
    return {
        "from": checksum(call.get("from", SENDER)),
        "to": checksum(call["to"]),
        "data": call["data"],
        "value": int(value, 16) if isinstance(value, str) else value,
        "gas": int(call["gas"], 16) if "gas" in call else 5_000_000,
    }
