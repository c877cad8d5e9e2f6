"""Calls of rules are sent once each, whatever happens on the way."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from anabranch.work.chain.contracts import call_data
from anabranch.work.chain.executor import DryRun, ExecutorOptions, SigningExecutor
from anabranch.work.chain.rpc import JsonRpc, RpcOptions
from anabranch.work.chain.sent import Sent, SentCall, SentFile, SentInMemory
from anabranch.work.chain.signer import LocalSigner
from anabranch.work.rule.ports import BadAbi, CallOutcome, ContractCall, ExecutorUnavailable
from hangs import HANG_SECONDS

from ..support import run
from .contracts import vault
from .node import KEY, QUICK, SENDER, Evm, Refusal, checksum

OPTIONS = ExecutorOptions(receipt_seconds=HANG_SECONDS, poll_seconds=0.01)
Work = Callable[[SigningExecutor], Coroutine[Any, Any, Any]]


@pytest.fixture
def evm() -> Evm:
    return Evm()


def call(to: str, function: str = "set(uint256)", *args: Any, **more: Any) -> ContractCall:
    given = {"value": 0, "gas_limit": None, "key": "s1:1", **more}
    return ContractCall(to=to, function=function, args=args, **given)


def using(
    evm: Evm,
    work: Work,
    sent: Sent | None = None,
    options: ExecutorOptions = OPTIONS,
    rpc: RpcOptions = QUICK,
) -> Any:
    async def whole() -> Any:
        async with evm.served() as url:
            node = JsonRpc(url, rpc)
            try:
                return await work(
                    SigningExecutor(node, LocalSigner(KEY), sent or SentInMemory(), options)
                )
            finally:
                await node.close()

    return run(whole())


def send(evm: Evm, one: ContractCall, sent: Sent | None = None, **more: Any) -> CallOutcome:
    outcome = using(evm, lambda executor: executor.execute(one), sent, **more)
    assert isinstance(outcome, CallOutcome)
    return outcome


def kept(evm: Evm, to: str, name: str = "get") -> int:
    return int(evm.eth_call({"to": to, "data": "0x" + call_data(f"{name}()").hex()}, "latest"), 16)


def transactions(evm: Evm) -> int:
    return evm.methods().count("eth_sendRawTransaction")


def test_a_call_changes_the_chain_and_names_its_transaction(evm: Evm) -> None:
    to = evm.deploy(vault())
    outcome = send(evm, call(to, "set(uint256)", 42))
    assert outcome.ok
    assert not outcome.dry_run
    assert outcome.error == ""
    assert evm.tester.get_transaction_by_hash(outcome.tx)["from"].lower() == SENDER
    assert kept(evm, to) == 42


def test_a_transfer_without_a_function_moves_the_value(evm: Evm) -> None:
    to = evm.deploy(vault())
    assert send(evm, call(to, "", value=1234), options=replace(OPTIONS, value_wei=1234)).ok
    assert kept(evm, to, "paid") == 1234
    assert evm.tester.get_balance(checksum(to)) == 1234


def test_a_call_that_would_revert_is_not_sent(evm: Evm) -> None:
    to = evm.deploy(vault())
    outcome = send(evm, call(to, "set(uint256)", 7))
    assert (outcome.ok, outcome.tx) == (False, "")
    assert "vault: odd" in outcome.error
    assert transactions(evm) == 0


def test_a_call_that_reverts_on_the_chain_is_no_success_and_says_why(evm: Evm) -> None:
    to = evm.deploy(vault())
    sent = SentInMemory()
    outcome = send(evm, call(to, "set(uint256)", 7, gas_limit=100_000), sent)
    assert not outcome.ok
    assert outcome.tx
    assert "vault: odd" in outcome.error
    assert send(evm, call(to, "set(uint256)", 7, gas_limit=100_000), sent) == outcome
    assert transactions(evm) == 1


# -- once --------------------------------------------------------------------------------------


def test_a_repetition_sends_nothing_and_gives_the_same_outcome(evm: Evm, tmp_path: Path) -> None:
    to = evm.deploy(vault())
    file = tmp_path / "sent.db"
    first = send(evm, call(to, "set(uint256)", 2), SentFile(file))
    again = send(evm, call(to, "set(uint256)", 2), SentFile(file))
    assert first == again
    assert transactions(evm) == 1
    other = send(evm, call(to, "set(uint256)", 4, key="s1:2"), SentFile(file))
    assert other.tx != first.tx
    assert kept(evm, to) == 4


def test_a_repetition_with_other_values_sends_nothing_and_says_so(evm: Evm) -> None:
    to = evm.deploy(vault())
    sent = SentInMemory()
    first = send(evm, call(to, "set(uint256)", 2), sent)
    again = send(evm, call(to, "set(uint256)", 8), sent)
    assert (again.ok, again.tx) == (True, first.tx)
    assert "another call was sent under this key" in again.error
    assert kept(evm, to) == 2


@pytest.mark.parametrize(("first", "sends"), [(42, 1), (7, 2)])
def test_a_redrive_sends_only_what_was_reverted_before(evm: Evm, first: int, sends: int) -> None:
    to, sent = evm.deploy(vault()), SentInMemory()
    send(evm, call(to, "set(uint256)", first, gas_limit=100_000), sent)
    for _execution in range(2):
        outcome = send(evm, call(to, "set(uint256)", 42, own_key="s2:1"), sent)
        assert outcome.ok
    assert transactions(evm) == sends
    assert kept(evm, to) == 42


def test_the_transaction_is_on_disk_before_it_is_sent(evm: Evm, tmp_path: Path) -> None:
    to = evm.deploy(vault())
    file = tmp_path / "sent.db"
    seen: list[SentCall | None] = []
    scope = f"{int(evm.eth_chainId(), 16)}:{SENDER}"

    def look(method: str) -> None:
        if method == "eth_sendRawTransaction":
            seen.append(SentFile(file)._find(scope, "s1:1"))

    evm.before = look
    outcome = send(evm, call(to, "set(uint256)", 2), SentFile(file))
    assert [record.tx for record in seen if record is not None] == [outcome.tx]
    settled = SentFile(file)._find(scope, "s1:1")
    assert settled is not None
    assert settled.outcome == "ok"


def test_after_a_crash_before_sending_the_same_bytes_go_out(evm: Evm, tmp_path: Path) -> None:
    """The worker dies between writing down and sending; somebody else repeats the step."""
    to = evm.deploy(vault())
    file = tmp_path / "sent.db"

    class Crashing(SentFile):
        async def remember(self, call: SentCall) -> SentCall | None:
            await super().remember(call)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        send(evm, call(to, "set(uint256)", 2), Crashing(file))
    assert transactions(evm) == 0
    outcome = send(evm, call(to, "set(uint256)", 2), SentFile(file))
    assert outcome.ok
    assert kept(evm, to) == 2


def test_an_answer_that_gets_lost_does_not_send_twice(evm: Evm) -> None:
    to = evm.deploy(vault())
    before = evm.tester.get_nonce(checksum(SENDER))

    def answer(question: dict[str, Any]) -> dict[str, Any]:
        said = Evm.answer(evm, question)
        if question["method"] == "eth_sendRawTransaction":
            return {"jsonrpc": "2.0", "id": -1, "result": said["result"]}
        return said

    evm.answer = answer  # type: ignore[method-assign]
    assert send(evm, call(to, "set(uint256)", 2)).ok
    assert evm.tester.get_nonce(checksum(SENDER)) == before + 1


def test_of_two_processes_under_one_key_only_the_first_sends(evm: Evm, tmp_path: Path) -> None:
    to = evm.deploy(vault())
    file = tmp_path / "sent.db"

    class Overtaken(SentFile):
        """Somebody else writes down a call of the same key just before us."""

        async def remember(self, call: SentCall) -> SentCall | None:
            quicker.append(await asyncio.to_thread(send, evm, mine, SentFile(file)))
            return await super().remember(call)

    quicker: list[CallOutcome] = []
    mine = call(to, "set(uint256)", 2)
    outcome = send(evm, mine, Overtaken(file))
    assert quicker == [outcome]
    assert transactions(evm) == 1


def test_many_calls_at_once_get_a_nonce_each(evm: Evm) -> None:
    to = evm.deploy(vault())

    async def all_at_once(executor: SigningExecutor) -> list[CallOutcome]:
        calls = [call(to, "set(uint256)", 2 * n, key=f"s1:{n}") for n in range(8)]
        twice = [*calls, *calls]
        return list(await asyncio.gather(*(executor.execute(one) for one in twice)))

    outcomes = using(evm, all_at_once)
    assert all(outcome.ok for outcome in outcomes)
    assert len({outcome.tx for outcome in outcomes}) == 8
    assert transactions(evm) == 8


# -- refusals ----------------------------------------------------------------------------------


def refusing(evm: Evm, number: int, words: str, times: int = 1_000) -> None:
    original = evm.eth_sendRawTransaction
    left = [times]

    def refuse(raw: str) -> str:
        if left[0]:
            left[0] -= 1
            raise Refusal(number, words)
        return original(raw)

    evm.eth_sendRawTransaction = refuse  # type: ignore[method-assign]


def test_a_transaction_the_node_does_not_take_is_forgotten(evm: Evm) -> None:
    to = evm.deploy(vault())
    sent = SentInMemory()
    refusing(evm, -32000, "insufficient funds for gas * price + value", times=1)
    with pytest.raises(ExecutorUnavailable, match="insufficient funds"):
        send(evm, call(to, "set(uint256)", 2), sent)
    assert send(evm, call(to, "set(uint256)", 2), sent).ok


def test_a_nonce_somebody_else_has_used_is_replaced(evm: Evm) -> None:
    to = evm.deploy(vault())
    refusing(evm, -32000, "nonce too low", times=2)
    assert send(evm, call(to, "set(uint256)", 2)).ok
    assert transactions(evm) == 3


class Signed(SentInMemory):
    """Remembers the nonce of everything that was signed."""

    def __init__(self) -> None:
        super().__init__()
        self.nonces: list[int] = []

    async def remember(self, call: SentCall) -> SentCall | None:
        if "\n" not in call.key:
            self.nonces.append(call.nonce)
        return await super().remember(call)

    async def replace(self, before: SentCall, call: SentCall) -> bool:
        self.nonces.append(call.nonce)
        return await super().replace(before, call)


@pytest.mark.parametrize("words", ["insufficient funds", "nonce too low", "fee too low"])
def test_a_node_that_takes_what_it_refuses_gets_it_mined_once(
    evm: Evm, words: str, tmp_path: Path
) -> None:
    """Each try of the step signed another one, and the node could have all of them mined."""
    to, sent = evm.deploy(vault()), SentFile(tmp_path / "sent")
    before, original = evm.tester.get_nonce(checksum(SENDER)), evm.eth_sendRawTransaction

    def lying(raw: str) -> str:
        with suppress(Exception):
            original(raw)
        raise Refusal(-32000, words)

    evm.eth_sendRawTransaction = lying  # type: ignore[method-assign]
    for _ in range(3):
        with suppress(ExecutorUnavailable):
            send(evm, call(to, "set(uint256)", 2), sent)
    assert evm.tester.get_nonce(checksum(SENDER)) == before + 1
    assert send(evm, call(to, "set(uint256)", 2), sent).ok


@pytest.mark.parametrize(("counts", "most"), [(False, 1), (True, 2)])
def test_a_node_that_lies_about_nonces_gets_no_third(evm: Evm, counts: bool, most: int) -> None:
    """And no second, unless it says that others have used the first one."""
    to, sent = evm.deploy(vault()), Signed()
    said = [evm.tester.get_nonce(checksum(SENDER))]

    def refuse(_raw: str) -> str:
        said[0] += counts
        raise Refusal(-32000, "nonce too low")

    node: Any = evm
    node.eth_sendRawTransaction = refuse
    node.eth_getTransactionCount = lambda _who, _tag: hex(said[0])
    for _ in range(3):
        with pytest.raises(ExecutorUnavailable):
            send(evm, call(to, "set(uint256)", 2), sent)
    assert len(set(sent.nonces)) == most


def test_a_transaction_the_node_knows_already_is_fine(evm: Evm) -> None:
    to = evm.deploy(vault())
    original = evm.eth_sendRawTransaction

    def known(raw: str) -> str:
        original(raw)
        raise Refusal(-32000, "already known")

    evm.eth_sendRawTransaction = known  # type: ignore[method-assign]
    assert send(evm, call(to, "set(uint256)", 2)).ok


def test_waiting_for_a_receipt_ends_and_the_next_try_goes_on_waiting(evm: Evm) -> None:
    to = evm.deploy(vault())
    sent = SentInMemory()
    evm.tester.disable_auto_mine_transactions()
    short = ExecutorOptions(receipt_seconds=0.05, poll_seconds=0.01)
    with pytest.raises(ExecutorUnavailable, match=r"transaction 0x\w+ was sent, but is not mined"):
        send(evm, call(to, "set(uint256)", 2), sent, options=short)
    evm.tester.mine_block()
    assert send(evm, call(to, "set(uint256)", 2), sent).ok
    assert kept(evm, to) == 2


def test_more_gas_than_allowed_is_refused_unsent(evm: Evm) -> None:
    to = evm.deploy(vault())
    with pytest.raises(ExecutorUnavailable, match=r"6,000,000 gas, more than 5,000,000 .*nothing"):
        send(evm, call(to, "set(uint256)", 2, gas_limit=6_000_000))
    assert transactions(evm) == 0


def greedy(evm: Evm, *, tip: int = 0, base: int | None = None, price: int = 0) -> None:
    """A node that names fees; without a base fee it is one of before EIP-1559."""
    block = {"number": hex(evm.block)} | ({} if base is None else {"baseFeePerGas": hex(base)})
    node: Any = evm
    node.eth_getBlockByNumber = lambda _tag, _full: block
    node.eth_maxPriorityFeePerGas = lambda: hex(tip)
    node.eth_gasPrice = lambda: hex(price)


GREEDY: list[dict[str, int]] = [
    {"tip": 10**18, "base": 1},
    {"tip": 1, "base": 10**18},
    {"price": 10**18},
]


@pytest.mark.parametrize("fees", GREEDY, ids=["tip", "base", "price"])
@pytest.mark.parametrize("gas", [None, 100_000])
def test_a_node_that_names_a_fee_beyond_the_limit_gets_nothing_signed(
    evm: Evm, fees: dict[str, int], gas: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    signed: list[Any] = []
    monkeypatch.setattr(LocalSigner, "sign", lambda _self, transaction: signed.append(transaction))
    greedy(evm, **fees)
    to, sent = evm.deploy(vault()), SentInMemory()
    with pytest.raises(ExecutorUnavailable) as refused:
        send(evm, call(to, "set(uint256)", 2, gas_limit=gas), sent)
    said = str(refused.value)
    assert "more than 1,000,000,000,000,000,000 (setting chain_fee_max)" in said
    met = re.search(r"may cost ([0-9,]+) wei \(([0-9,]+) gas at ([0-9,]+) wei", said)
    assert met is not None
    cost, units, each = (int(number.replace(",", "")) for number in met.groups())
    assert cost == units * each > 10**22
    assert "nothing was sent" in said
    assert signed == []
    assert transactions(evm) == 0
    assert run(sent.find(f"{int(evm.eth_chainId(), 16)}:{SENDER}", "s1:1")) is None


@pytest.mark.parametrize("function", ["", "set(uint256)"])
def test_a_rule_sends_no_more_along_than_the_operator_allows(
    evm: Evm, function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    signed: list[Any] = []
    monkeypatch.setattr(LocalSigner, "sign", lambda _self, transaction: signed.append(transaction))
    to, args = evm.deploy(vault()), (2,) if function else ()
    for options, value in ((OPTIONS, 1), (replace(OPTIONS, value_wei=99), 100)):
        with pytest.raises(ExecutorUnavailable, match=r"\(setting chain_value_wei\); nothing was"):
            send(evm, call(to, function, *args, value=value, gas_limit=90_000), options=options)
    assert (signed, transactions(evm)) == ([], 0)


def test_a_fee_of_just_the_limit_is_paid(evm: Evm) -> None:
    greedy(evm, base=10**9, tip=10**9)  # twice the base fee and the tip: 3 gwei
    to = evm.deploy(vault())
    least = replace(OPTIONS, fee_max=100_000 * 3 * 10**9 - 1)
    with pytest.raises(ExecutorUnavailable, match="299,999,999,999,999"):
        send(evm, call(to, "set(uint256)", 2, gas_limit=100_000), options=least)
    enough = replace(OPTIONS, fee_max=100_000 * 3 * 10**9)
    assert send(evm, call(to, "set(uint256)", 2, gas_limit=100_000), options=enough).ok


def test_a_record_that_cannot_be_written_sends_nothing(evm: Evm, tmp_path: Path) -> None:
    to = evm.deploy(vault())
    file = tmp_path / "sent.db"
    file.write_text("this is no database, and long enough to be sure " * 100)
    with pytest.raises(ExecutorUnavailable, match="record of sent transactions"):
        send(evm, call(to, "set(uint256)", 2), SentFile(file))
    assert transactions(evm) == 0


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (call("Stock", "set(uint256)", 2), "that is no address"),
        (call("0x" + 40 * "1", "set(uint256)", -2), "outside of uint256"),
        (call("0x" + 40 * "1", "set"), "cannot be read"),
        (call("0x" + 40 * "1", "", 5), "arguments are given, but no function"),
        (call("0x" + 40 * "1", "", value=-1), "wei cannot be sent"),
    ],
)
def test_a_call_that_cannot_be_encoded_is_a_hard_error(
    evm: Evm, one: ContractCall, words: str
) -> None:
    with pytest.raises(BadAbi, match=words):
        send(evm, one)
    with pytest.raises(BadAbi, match=words):
        run(DryRun().execute(one))


# -- dry runs ----------------------------------------------------------------------------------


def test_a_dry_run_notes_calls_and_sends_nothing(evm: Evm) -> None:
    dry, one = DryRun(), call("0x" + 40 * "1", "set(uint256)", 7)
    assert run(dry.execute(one)) == CallOutcome(ok=True, dry_run=True)
    assert list(dry.calls) == [one]


def test_a_simulated_call_says_what_would_happen(evm: Evm) -> None:
    to = evm.deploy(vault())

    async def simulate(value: int, gas: int | None = None) -> CallOutcome:
        async with evm.served() as url:
            node = JsonRpc(url, QUICK)
            try:
                one = call(to, "set(uint256)", value, gas_limit=gas)
                return await DryRun(node, sender=SENDER).execute(one)
            finally:
                await node.close()

    assert run(simulate(2)) == CallOutcome(ok=True, dry_run=True)
    refused = run(simulate(3, 90_000))
    assert (refused.ok, refused.dry_run) == (False, True)
    assert "vault: odd" in refused.error
    assert kept(evm, to) == 0
