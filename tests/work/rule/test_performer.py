"""The kind `rule`: where rules come from, receipts, gas and budgets, secrets, wake-ups."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from anabranch.dialects.xrc137.document import RuleProgram
from anabranch.keccak import keccak256
from anabranch.kernel.values import Answer, ContextPatch, WakeRequest
from anabranch.work.rule.ledger import GasLedger
from anabranch.work.rule.patience import Patience
from anabranch.work.rule.ports import (
    DecryptionFailed,
    ExecutorUnavailable,
    RuleText,
    RuleUnavailable,
)

from ..support import run, task
from .rules import OWNER, RULE, TOKEN, Chain, carried_out, performer, rule_task

READ = {"to": TOKEN, "function": "f()", "saveAs": {"0": {"key": "R", "type": "uint256"}}}
PLAIN = json.dumps({"payload": {}, "onValid": {"payload": {"Said": "yes"}}})


class Source:
    def __init__(self, *found: str | RuleUnavailable) -> None:
        self.found = list(found)
        self.asked: list[str] = []

    async def rule(self, address: str) -> RuleText:
        self.asked.append(address)
        found = self.found.pop(0) if len(self.found) > 1 else self.found[0]
        if isinstance(found, RuleUnavailable):
            raise found
        return RuleText(found, f"0x{keccak256(found.encode()).hex()}", "chain@9")


def performed(source: Source | None, times: int = 1, **more: Any) -> list[Answer]:
    async def whole() -> list[Answer]:
        worker = performer(rules=source, **more)
        fetched = rule_task(PLAIN, program=RuleProgram(RULE))
        answers = [await worker.perform(fetched) for _ in range(times)]
        await worker.close()
        return answers

    return run(whole())


# -- where rules come from -------------------------------------------------------------------


def test_a_bundled_rule_needs_no_source() -> None:
    answer = carried_out(PLAIN)
    assert answer.outcome == "valid"
    assert answer.record["ruleHash"] == f"0x{keccak256(PLAIN.encode()).hex()}"
    assert answer.record["extras"]["ruleOrigin"] == "bundle"


def test_other_rules_are_fetched_by_address_for_every_step() -> None:
    changed = PLAIN.replace("yes", "changed")
    source = Source(PLAIN, changed)
    first, second = performed(source, 2)
    assert source.asked == [RULE, RULE]
    assert (first.result, second.result) == ({"Said": "yes"}, {"Said": "changed"})
    assert first.record["ruleHash"] != second.record["ruleHash"]
    assert first.record["extras"]["ruleOrigin"] == "chain@9"


AWAY = RuleUnavailable("the node is down", retryable=True)


def put_off(times: int, waited_ms: int, seconds: float = 3600) -> Answer:
    worker = performer(rules=Source(AWAY), patience=Patience(seconds))
    task = rule_task("", program=RuleProgram(RULE))
    return run(
        worker.perform(msgspec.structs.replace(task, postponed=times, postponed_ms=waited_ms))
    )


def test_a_rule_that_is_not_there_for_now_is_asked_for_again_ever_more_seldom() -> None:
    waited, pauses = 0, []
    for times in range(9):
        answer = put_off(times, waited)
        assert (answer.status, answer.patches, answer.record) == ("error", (), None)
        pauses.append(answer.later_ms)
        waited += answer.later_ms
    assert pauses == [1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000, 60000]
    assert put_off(500, 3_599_000).later_ms == 1000, "not beyond the patience"


@pytest.mark.parametrize(("seconds", "waited_ms"), [(3600, 3_600_000), (0, 0)])
def test_patience_that_is_used_up_aborts_the_process_and_names_its_setting(
    seconds: float, waited_ms: int
) -> None:
    answer = put_off(4, waited_ms, seconds)
    assert answer.status == "aborted"
    assert answer.record["error_class"] == "rule_unavailable"
    assert "the node is down; given up after 5 tries" in answer.record["error_msg"]
    assert "chain_patience_seconds" in answer.record["error_msg"]


def test_a_step_whose_call_cannot_be_sent_for_now_is_put_off_and_charged_nothing() -> None:
    document = {"onValid": {"payload": {"A": 1}, "execution": {"to": TOKEN}}}
    away = ExecutorUnavailable("the node is down", retryable=True)
    answer = carried_out(document, chain=Chain(outcome=away))
    assert (answer.status, answer.later_ms, answer.patches) == ("error", 1000, ())


class Of:
    """A node of these chains, one after the other."""

    def __init__(self, *chains: int) -> None:
        self.chains = list(chains)

    async def chain_id(self, *, anew: bool = False) -> int:
        if anew and len(self.chains) > 1:
            del self.chains[0]
        return self.chains[0]


@pytest.mark.parametrize(
    ("chains", "known", "seen"),
    [((5,), 0, 5), ((5,), 5, 0), ((6, 5), 5, 0), ((6,), 5, None), ((6, 6), 5, None)],
)
def test_a_session_uses_its_own_chain_and_none_other(
    chains: tuple[int, ...], known: int, seen: int | None
) -> None:
    worker = performer(Chain({"f()": [7]}), identity=Of(*chains))
    reads = {"contractReads": [READ]}
    answer = run(worker.perform(rule_task(reads, chainId=known)))
    if seen is None:
        assert answer.fault is not None
        assert (answer.fault.kind, answer.later_ms) == ("other_chain", 1000)
        assert "belongs to chain 5" in answer.fault.message
    else:
        learnt = [patch.value for patch in answer.patches if patch.key == "chain_id"]
        assert learnt == ([seen] if seen else [])
    again = run(worker.perform(rule_task(reads, ctx={"chain_id": 9})))
    assert again.fault is not None
    assert again.fault.kind == "other_chain"


def test_a_rule_that_is_nowhere_aborts_the_process() -> None:
    for source in (None, Source(RuleUnavailable("no contract at this address"))):
        (answer,) = performed(source)
        assert answer.status == "aborted"
        assert answer.record["error_class"] == "rule_unavailable"


class Opens:
    def __init__(self, found: str | DecryptionFailed) -> None:
        self.found = found

    async def decrypt(self, address: str, text: str) -> str:
        assert (address, text[:5]) == (RULE, "XGR1.")
        if isinstance(self.found, DecryptionFailed):
            raise self.found
        return self.found


def test_an_encrypted_rule_needs_a_decryptor_and_its_log_stays_closed() -> None:
    sealed = Source("XGR1.AESGCM256.rid.blob")
    (refused,) = performed(sealed)
    assert refused.record["error_class"] == "encrypted_rule"
    (opened,) = performed(sealed, decryptor=Opens(PLAIN))
    assert opened.result == {"Said": "yes"}
    assert opened.record["payload"] is None
    (failed,) = performed(sealed, decryptor=Opens(DecryptionFailed("no grant")))
    assert failed.record["error_class"] == "decryption_failed"


def test_a_job_without_a_rule_says_so() -> None:
    answer = run(performer().perform(task("rule")))
    assert isinstance(answer, Answer)
    assert answer.fault is not None
    assert answer.fault.kind == "config"


# -- receipts --------------------------------------------------------------------------------


def test_a_receipt_has_the_fields_of_the_public_event() -> None:
    record = carried_out(PLAIN, orchestration=TOKEN, ostcId="demo", ostcHash="0xaa").record
    assert record == {
        "sessionId": "17", "iteration": 3, "orchestration": TOKEN, "ostcId": "demo",
        "ostcHash": "0xaa", "stepId": "Check", "ruleContract": RULE,
        "ruleHash": f"0x{keccak256(PLAIN.encode()).hex()}", "execContract": "", "execResult": False,
        "payload": {"Said": "yes"}, "apiSaves": {}, "contractSaves": {},
        "extras": {"valid": True, "from": OWNER, "gasUsed": 10_400, "ruleOrigin": "bundle",
                   "logExpireDays": 365},
        "error_class": "", "error_msg": "",
    }  # fmt: skip


def test_without_a_chain_calls_are_recorded_and_reads_fail_softly() -> None:
    document = {
        "contractReads": [
            {
                "to": TOKEN,
                "function": "f()",
                "saveAs": {"0": {"key": "R", "type": "bool", "default": True}},
            }
        ],
        "onValid": {
            "execution": {
                "to": TOKEN,
                "function": "g(uint256)",
                "args": [{"type": "uint256", "value": str(2**200)}],
            }
        },
    }
    answer = carried_out(document)
    extras = answer.record["extras"]
    assert answer.outcome == "valid"
    assert "no chain is configured" in extras["failures"][0]
    assert extras["dryRun"] is True
    assert extras["call"]["args"] == [str(2**200)]
    assert answer.record["execResult"] is False


SECRET = {
    "payload": {"__secret": {"type": "string"}, "N": {"type": "int64"}},
    "rules": ["size([__secret]) > 3"],
    "onValid": {"payload": {"__next": "[__secret]", "Open": 1}},
}


def test_private_keys_work_but_are_shown_nowhere() -> None:
    answer = carried_out(SECRET, {"__secret": "hunter2", "N": 1})
    assert answer.result == {"__next": "hunter2", "Open": 1}
    assert answer.record["payload"] == {"Open": 1}
    assert "hunter2" not in json.dumps(answer.record)
    wrong = {**SECRET, "rules": ["[__secret] + 1 > 2"]}
    failed = carried_out(wrong, {"__secret": "hunter2", "N": 1})
    assert failed.status == "aborted"
    assert "hunter2" not in json.dumps(failed.record)
    typed = {"payload": {"__secret": {"type": "int64"}}}
    assert "hunter2" not in str(carried_out(typed, {"__secret": "hunter2"}))


class Seals:
    def __init__(self, works: bool = True) -> None:
        self.works = works

    async def encrypt(self, log: Mapping[str, Any], readers: Sequence[Mapping[str, Any]]) -> str:
        if not self.works:
            raise DecryptionFailed("no key")
        assert log["payload"] == {"Said": "yes"}
        return f"XGR1.for-{len(readers)}"


@pytest.mark.parametrize(
    ("encryptor", "sealed"), [(None, None), (Seals(works=False), None), (Seals(), "XGR1.for-1")]
)
def test_an_encrypted_log_is_sealed_or_left_out_but_never_clear(
    encryptor: Seals | None, sealed: str | None
) -> None:
    branch = {
        "payload": {"Said": "yes"},
        "encryptLogs": True,
        "grants": [{"address": TOKEN, "rights": 1}],
        "logExpireDays": 30,
        "execution": {"to": TOKEN, "args": [{"type": "string", "value": "[from]"}]},
    }
    worker = performer(Chain(), encryptor=encryptor)
    answer = run(worker.perform(rule_task({"onValid": branch})))
    extras = answer.record["extras"]
    assert answer.result == {"Said": "yes"}
    assert [answer.record[key] for key in ("payload", "apiSaves", "contractSaves")] == [None] * 3
    assert extras.get("engineEncrypted") == sealed
    assert extras["grants"] == [{"address": TOKEN, "rights": 1, "expireDays": 30}]
    assert "call" not in extras


def test_wake_ups_carry_the_output_and_their_own_payload_without_private_keys() -> None:
    branch = {
        "payload": {"Price": 5, "_own": 1},
        "wakeUps": [
            {"runner": OWNER, "sessionId": "[Other]", "stepId": "Wait",
             "payload": {"Extra": "[pid]", "Price": 6, "__x": 1}},
            {"runner": OWNER, "sessionId": "[Nobody]", "stepId": "Wait"},
        ],
    }  # fmt: skip
    document = {"payload": {"Other": {"type": "uint64"}}, "onValid": branch}
    answer = carried_out(document, {"Other": 8})
    payload = {"Price": 6, "Extra": "17:3"}
    assert answer.wakes == (WakeRequest("8", "Wait", OWNER, RULE, payload, OWNER),)


# -- gas -------------------------------------------------------------------------------------


def test_the_taken_branch_is_charged_with_its_real_wait_and_children() -> None:
    document = {
        "rules": ["size([from]) > 99"],
        "onValid": {"payload": {f"K{n}": 1 for n in range(9)}},
        "onInvalid": {"payload": {"A": 1}, "waitSec": "size([from]) * 100"},
    }
    answer = carried_out(document, valid_spawns=1, invalid_spawns=3)
    common = 10_000 + 1200 + 600 + 800 + 250
    assert answer.patches == (ContextPatch("gas", common + 400 + 2 * 3 * 100, "sum"),)
    assert answer.record["extras"]["gasUsed"] == common + 1000


def test_a_hard_error_is_charged_with_the_common_part() -> None:
    answer = carried_out({"rules": ["5"], "onValid": {"payload": {"A": 1}}})
    assert answer.patches == (ContextPatch("gas", 11_200, "sum"),)


def test_a_step_that_could_exceed_the_budget_does_not_start_and_ends_the_gas() -> None:
    chain = Chain()
    document = {"onValid": {"payload": {"A": 1}, "execution": {"to": TOKEN}}}
    just = 10_000 + 400 + 1200
    assert carried_out(document, chain=chain, budget=just).status == "ok"
    answer = carried_out(document, chain=chain, budget=just + 99, ctx={"gas": 100})
    assert answer.status == "aborted"
    assert answer.record["error_class"] == "gas"
    assert answer.patches == (ContextPatch("gas_exhausted", True),)
    assert len(chain.calls) == 1


def test_after_the_gas_is_gone_no_step_starts_however_cheap() -> None:
    answer = carried_out(PLAIN, budget=10**9, ctx={"gas_exhausted": True, "gas": 1})
    assert answer.record["error_class"] == "gas"
    assert answer.patches == ()


def test_a_budget_of_zero_is_no_budget() -> None:
    assert carried_out(PLAIN, budget=0, ctx={"gas": 10**12}).status == "ok"


def test_steps_at_work_at_the_same_time_share_the_budget() -> None:
    ledger = GasLedger()
    assert ledger.reserve("a", 60, recorded=0, budget=100)
    assert ledger.reserve("b", 60, recorded=0, budget=100)
    assert not ledger.reserve("a", 60, recorded=0, budget=100)
    assert ledger.exhausted("a")
    ledger.settle("a", 60, 10)
    assert not ledger.reserve("a", 1, recorded=10, budget=100), "once gone it stays gone"


def test_what_a_step_used_counts_even_before_it_is_recorded() -> None:
    ledger = GasLedger()
    assert ledger.reserve("a", 60, recorded=0, budget=100)
    ledger.settle("a", 60, 50)
    assert not ledger.reserve("a", 60, recorded=0, budget=100)


def test_the_ledger_forgets_old_runs_but_not_their_steps_at_work() -> None:
    ledger = GasLedger(runs_max=2)
    ledger.reserve("busy", 60, recorded=0, budget=100)
    for name in ("x", "y", "z"):
        ledger.reserve(name, 1, recorded=0, budget=100)
        ledger.settle(name, 1, 1)
    assert not ledger.reserve("busy", 60, recorded=0, budget=100)


# -- speed -----------------------------------------------------------------------------------


def test_a_plain_document_takes_less_than_a_millisecond_once_it_is_read() -> None:
    """Measured at about 0.07 ms; the bound is for busy machines."""
    document = {
        "payload": {"A": {"type": "uint256"}, "L": {"type": "int64", "default": 100}},
        "rules": ["[A] > 0", "[A] <= [L]", "[L] > 5 && [L] < 1000"],
        "onValid": {"payload": {"Total": "[A] + 5", "Text": "got [A]"}},
    }

    async def whole() -> float:
        worker = performer()
        job = rule_task(document, {"A": "7"})
        await worker.perform(job)
        best = 1.0
        for _ in range(20):
            began = time.process_time()
            for _ in range(20):
                await worker.perform(job)
            best = min(best, (time.process_time() - began) / 20)
        return best

    assert run(whole()) < 0.001
