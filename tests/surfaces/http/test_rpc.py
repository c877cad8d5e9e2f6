"""`/rpc`: clients made for the chain start, list, wake and end sessions with what they signed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from anabranch.errors import InputError
from anabranch.operations.sessions import grants
from anabranch.operations.sessions.rpc_methods import ABSENT, METHODS
from anabranch.settings import Settings
from anabranch.store.access_ports import AuditFilter
from anabranch.surfaces.http.rpc import AWAY, opened
from anabranch.work.chain.permits import PermitRefused, verified
from free_ports import free_port
from work.chain.contracts import registry, returned
from work.chain.contracts import rule as rule_contract
from work.chain.node import Evm

from .access import Door, serving
from .permits import ANN, BOB, CHAIN, EVE, SOON, Wallet
from .support import run

ZERO, HASH = "0x" + "0" * 64, "0x" + "ab" * 32
SLEEPER = {
    "orchestration": {
        "id": "sleeper",
        "structure": {
            "A1": {"rule": "cm:xrc137:A", "onValid": {"spawns": ["W1"]}},
            "W1": {"rule": "cm:xrc137:W"},
        },
    },
    "rules": {
        "A": {"payload": {}, "onValid": {"waitSec": 3600}},
        "W": {"payload": {"x": {"type": "int64", "default": 0}},
              "onValid": {"payload": {"x": "[x] + 1"}}},
    },
}  # fmt: skip


class Caller:
    def __init__(self, door: Door) -> None:
        self.door = door
        self.token = ""

    async def raw(self, body: Any, **headers: str) -> Any:
        return await self.door.ask("POST", "//rpc", self.token, body=body, **headers)

    async def call(self, method: str, *params: Any) -> Any:
        body = {"jsonrpc": "2.0", "id": 7, "method": f"xgr_{method}", "params": list(params)}
        reply = await self.raw(body)
        assert reply.status == 200, reply
        assert (reply.json["jsonrpc"], reply.json["id"]) == ("2.0", 7)
        return reply.json

    async def ok(self, method: str, *params: Any) -> Any:
        told = await self.call(method, *params)
        assert "error" not in told, told
        return told["result"]

    async def refused(self, method: str, *params: Any) -> tuple[str, str]:
        told = (await self.call(method, *params))["error"]
        return told["data"]["code"], told["message"]

    async def sleeping(self, owner: Wallet, **payload: Any) -> str:
        """A session of this owner whose process 2 sleeps at W1."""
        parts = self.door.server.parts
        run_id = await parts.verbs.start(SLEEPER, payload, labels={"owner": owner.address})
        while not parts.engine.state(run_id).phases.get("sleeping"):
            await asyncio.sleep(0.005)
        return run_id


@asynccontextmanager
async def calling(**settings: Any) -> AsyncIterator[Caller]:
    """`pages` adds those for people."""
    async with serving(**{"rpc_access": "permit", "chain_id": CHAIN, **settings}) as door:
        yield Caller(door)


def wakes(who: Wallet, owner: Wallet, session: int = 1, **more: Any) -> dict[str, Any]:
    message = {"runner": owner.address, "sessionId": session, "action": "wake", **more}
    return who.sign("ControlPermitV2", message)


# -- what needs no permit ------------------------------------------------------------------------


def test_numbers_are_told_to_everybody() -> None:
    async def go() -> None:
        async with calling() as at:
            core = await at.ok("getCoreAddrs")
            assert core == {
                "grants": "",
                "publicSale": "",
                "precompile": "0x00000000000000000000000000000000000000e1",
                "chainId": "0x66b",
            }
            assert await at.ok("getNextProcessId", {"from": ANN.address}) == {"nextProcessId": "1"}
            await at.sleeping(ANN)
            assert await at.ok("getNextProcessId", {"from": ANN.address}) == {"nextProcessId": "2"}
            assert await at.ok("sessionAlive", ANN.address, "1") is True
            assert await at.ok("sessionAlive", BOB.address, "1") is False
            executed = [await at.ok("stepExecuted", ANN.address, "1", n) for n in (1, 2, 9)]
            assert executed == [True, False, None]
            gas = await at.ok("estimateRuleGas", {"json": '{"payload": {}}', "validSpawns": 2})
            assert gas["validationGas"] == 10000
            assert gas["totalWorstCase"] >= gas["totalValid"] > 0
            assert await at.ok("getGrantFeePerYear") == {"wei": "0x0"}
            assert await at.ok("getPublicSale") == {"publicSale": ""}

    run(go())


def test_the_node_says_once_which_chain_it_is_of() -> None:
    async def go() -> None:
        evm = Evm()
        async with evm.served() as url, calling(chain_url=url, chain_id=0) as at:
            asked = [at.ok("getCoreAddrs") for _ in range(5)]
            assert len({told["chainId"] for told in await asyncio.gather(*asked)}) == 1
            assert (await at.ok("getCoreAddrs"))["chainId"] == evm.eth_chainId()
            assert [method for method, _ in evm.asked] == ["eth_chainId"]
        async with calling(chain_url=f"http://127.0.0.1:{free_port()}/", chain_id=0) as at:
            for _ in range(2):
                assert (await at.ok("getCoreAddrs"))["chainId"] == ""

    run(go())


def test_a_run_that_is_called_like_a_number_is_no_session_of_somebody_else() -> None:
    async def go() -> None:
        async with calling() as at:
            start = at.door.server.parts.verbs.start
            await start(SLEEPER, {}, run="7", labels={"owner": BOB.address})
            assert await at.ok("sessionAlive", ANN.address, "7") is False
            assert await at.ok("stepExecuted", ANN.address, "7", 1) is None
            asked = {"permit": wakes(ANN, ANN, 7), "processId": "7:2"}
            code, words = await at.refused("wakeUpProcess", asked)
            assert (code, "has no session 7" in words) == ("not_found", True)
            permit = ANN.sign("xdalaPermit", {})
            rows = await at.ok("listSessions", {"permit": permit, "rootId": "7"})
            assert rows == {"sessions": []}

    run(go())


# -- listing, waking, ending -----------------------------------------------------------------------


def test_an_owner_lists_their_sessions_and_nobody_elses() -> None:
    async def go() -> None:
        async with calling() as at:
            await at.sleeping(ANN)
            await at.sleeping(BOB)
            await at.sleeping(ANN)
            permit = ANN.sign("xdalaPermit", {})
            rows = (await at.ok("listSessions", {"permit": permit, "last": 99999}))["sessions"]
            assert [(row["sessionId"], row["pid"], row["status"]) for row in rows] == [
                ("2", "2:1", "done"),
                ("2", "2:2", "waiting"),
                ("1", "1:1", "done"),
                ("1", "1:2", "waiting"),
            ]
            assert set(rows[0]) == {
                "owner", "sessionId", "pid", "parentPid", "step", "status", "updated",
                "iterationStep", "xrc729", "ostcId", "joinGroupId", "joinFromGroupId",
            }  # fmt: skip
            assert {row["owner"] for row in rows} == {ANN.address}
            assert rows[0]["updated"] < 1e11, "in seconds"
            asked = {"permit": permit, "rootId": "1", "parentPid": "1:1"}
            (child,) = (await at.ok("listSessions", asked))["sessions"]
            assert child["pid"] == "1:2"
            assert (await at.ok("listSessions", {"permit": permit, "rootId": "9"}))[
                "sessions"
            ] == []

    run(go())


def test_a_delegate_sees_and_wakes_what_the_owner_allows_and_by_step_only() -> None:
    async def go() -> None:
        async with calling() as at:
            allowed = {"__wakeUp": {"steps": {"W1": {"rpc": [BOB.address]}}}}
            session = await at.sleeping(ANN, **allowed)

            async def seen(who: Wallet, **more: Any) -> list[str]:
                permit = wakes(who, ANN, **more)
                asked = {"runner": ANN.address, "rootId": "1", "controlPermit": permit}
                rows = (await at.ok("listSessions", asked))["sessions"]
                assert all("parentPid" not in row for row in rows)
                return [row["pid"] for row in rows]

            assert await seen(BOB, stepId="") == ["1:2"]
            assert await seen(ANN, stepId="W1") == ["1:2"]
            assert await seen(BOB, stepId="A1") == []
            assert await seen(EVE, stepId="W1") == []
            nothing = await at.refused(
                "wakeUpProcess", {"permit": wakes(EVE, ANN, stepId="W1"), "stepId": "W1"}
            )
            assert nothing[0] == "not_allowed"
            by_process = {"processId": "1:2", "permit": wakes(BOB, ANN, stepId="")}
            assert (await at.refused("wakeUpProcess", by_process))[0] == "step_only"
            told = await at.ok(
                "wakeUpProcess",
                {"permit": wakes(BOB, ANN, stepId="W1"), "payload": {"x": 4, "_y": 1}},
            )
            assert told == {
                "ok": True, "owner": ANN.address, "sessionId": 1, "rootPid": "1",
                "mode": "step", "woken": 1,
            }  # fmt: skip
            done = await at.door.server.parts.verbs.wait(session)
            assert done.finished
            assert await at.ok("sessionAlive", ANN.address, "1") is False

    run(go())


def test_the_owner_wakes_a_process_and_ends_a_session() -> None:
    async def go() -> None:
        async with calling() as at:
            await at.sleeping(ANN)
            permit = ANN.sign("ControlPermit", {"sessionId": 1, "action": "wake"})
            told = await at.ok("wakeUpProcess", {"processId": "1:2", "permit": permit})
            assert (told["mode"], told["woken"]) == ("pid", 1)
            await at.sleeping(ANN)
            kill = ANN.sign("ControlPermit", {"sessionId": 2, "action": "kill"})
            told = await at.ok("control", {"action": "kill", "permit": kill})
            assert told == {
                "ok": True, "owner": ANN.address, "processId": 2, "action": "kill",
                "status": "killed", "affected": 1,
            }  # fmt: skip
            audit_log = [(one.actor, one.action, one.subject, one.outcome)
                     for one in at.door.server.parts.store.audit(AuditFilter())]  # fmt: skip
            assert (ANN.address, "rpc.control", f"{ANN.address}/2", "done") in audit_log

    run(go())


def test_nobody_ends_the_session_of_another() -> None:
    async def go() -> None:
        async with calling() as at:
            await at.sleeping(ANN)
            message = {"runner": ANN.address, "sessionId": 1, "action": "kill"}
            for permit in (
                EVE.sign("ControlPermitV2", message),
                EVE.sign("ControlPermit", {"sessionId": 1, "action": "kill"}),
            ):
                assert (await at.refused("control", {"permit": permit}))[0] in (
                    "not_allowed",
                    "not_found",
                )
            assert await at.ok("sessionAlive", ANN.address, "1") is True

    run(go())


# -- permits that do not hold ----------------------------------------------------------------------


def tampered(permit: dict[str, Any], **message: Any) -> dict[str, Any]:
    return {**permit, "message": {**permit["message"], **message}}


XDALA = ANN.sign("xdalaPermit", {})


@pytest.mark.parametrize(
    ("permit", "code", "words"),
    [
        (None, "permit_form", "there is no permit"),
        ({**XDALA, "signature": ""}, "permit_form", "130 hexadecimal digits"),
        ({**XDALA, "signature": "0x" + "00" * 65}, "permit_signature", "is none"),
        ({key: XDALA[key] for key in XDALA if key != "types"}, "permit_form", "no `types`"),
        (tampered(XDALA, **{"from": EVE.address}), "permit_signature", "another key signed it"),
        (tampered(XDALA, expiry=SOON + 1), "permit_signature", "another key signed it"),
        (ANN.sign("xdalaPermit", {"expiry": 1_700_000_000}), "permit_expired", "1700000000"),
        (ANN.sign("xdalaPermit", {}, chainId=1879), "permit_chain", "1879, and this is chain 1643"),
        ({**XDALA, "domain": {**XDALA["domain"], "chainId": 1}}, "permit_chain", "for chain 1,"),
        (ANN.sign("ControlPermit", {"sessionId": 1, "action": "wake"}), "permit", "not a xdala"),
        ({**XDALA, "types": {"xdalaPermit": [{"name": "from", "type": "address"}]}},
         "permit_form", "signed without `expiry`"),
        ({**XDALA, "types": {"xdalaPermit": [*XDALA["types"]["xdalaPermit"],
                                             {"name": "more", "type": "string"}]}},
         "permit_form", "has no field 'more'"),
    ],
)  # fmt: skip
def test_a_permit_that_does_not_hold_is_refused_with_the_reason(
    permit: Any, code: str, words: str
) -> None:
    async def go() -> None:
        async with calling() as at:
            found = await at.refused("listSessions", {"permit": permit})
            assert found[0] == code
            assert words in found[1]

    run(go())


def test_a_permit_for_one_thing_is_none_for_another() -> None:
    async def go() -> None:
        async with calling() as at:
            await at.sleeping(ANN)
            wake = ANN.sign("ControlPermit", {"sessionId": 1, "action": "wake", "stepId": "W1"})
            for method, given, words in (
                ("control", {"permit": wake}, "for 'wake', not for 'kill'"),
                ("control", {"permit": wake, "action": "kill"}, "for 'wake', not for 'kill'"),
                ("wakeUpProcess", {"permit": wake, "stepId": "A1"}, "for step 'W1', not for 'A1'"),
                ("wakeUpProcess", {"permit": wake, "processId": "1:2"}, "name `processId`"),
            ):
                assert words in (await at.refused(method, given))[1]
            other = ANN.sign("ControlPermit", {"sessionId": 2, "action": "wake"})
            given = {"permit": other, "processId": "1:2"}
            assert "for session 2, not for '1:2'" in (await at.refused("wakeUpProcess", given))[1]
            pause = ANN.sign("ControlPermit", {"sessionId": 1, "action": "pause"})
            assert "no part of the interface" in (await at.refused("control", {"permit": pause}))[1]
            foreign = ANN.sign(
                "ControlPermit", {"sessionId": 1, "action": "kill"}, verifyingContract=EVE.address
            )
            assert "verifyingContract" in (await at.refused("control", {"permit": foreign}))[1]
            two = {"controlPermit": wakes(BOB, ANN, stepId=""), "runner": BOB.address}
            assert "for sessions of" in (await at.refused("listSessions", two))[1]
            root = {"controlPermit": wakes(BOB, ANN, stepId=""), "rootId": "2"}
            assert "for session 1" in (await at.refused("listSessions", root))[1]

    run(go())


def test_keys_with_capitals_and_numbers_as_texts_are_read_as_clients_send_them() -> None:
    async def go() -> None:
        async with calling() as at:
            permit = {
                key[0].upper() + key[1:]: value
                for key, value in tampered(XDALA, expiry=str(SOON)).items()
            }
            permit["Domain"] = {**XDALA["domain"], "chainId": hex(CHAIN)}
            permit["Owner"] = ANN.address
            assert await at.ok("listSessions", {"permit": permit}) == {"sessions": []}
            signature = bytes.fromhex(XDALA["signature"][2:])
            from_nought = signature[:64] + bytes([signature[64] - 27])
            counted = {**XDALA, "signature": "0x" + from_nought.hex()}
            assert await at.ok("listSessions", {"permit": counted}) == {"sessions": []}

    run(go())


def test_the_hash_of_a_session_permit_is_signed_as_bytes_or_as_text() -> None:
    text = "0x" + "aB" * 32
    message = {"ostcId": "o", "ostcHash": text, "sessionId": "7", "maxTotalGas": 0}
    for kind in ("bytes32", "string"):
        given = {**message, "sessionId": 7}
        permit = ANN.sign("SessionPermit", given, hash_type=kind)
        found = verified(permit, ["SessionPermit"], chain_id=CHAIN, now=1)
        assert (found.signer, found.number("sessionId")) == (ANN.address, 7)
        assert found.text("ostcHash").lower() == text.lower()
        other = tampered(permit, ostcHash="0x" + "cd" * 32)
        with pytest.raises(PermitRefused, match="another key"):
            verified(other, ["SessionPermit"], chain_id=CHAIN, now=1)
    elsewhere = ANN.sign("SessionPermit", {**message, "sessionId": 7}, name="XDaLa")
    with pytest.raises(PermitRefused, match="XDaLa SessionPermit"):
        verified(elsewhere, ["SessionPermit"], chain_id=CHAIN, now=1)


# -- starting --------------------------------------------------------------------------------------

RULE = (
    '{"payload":{"n":{"type":"int64"}},"rules":["[n] > 0"],"onValid":{"payload":{"n":"[n] + 1"}}}'
)


def deployed(evm: Evm, executors: list[str]) -> tuple[str, str]:
    """A registry of Ann with one orchestration, and the hash of that."""
    from anabranch.dialects.xrc729.bundle import hash_of

    access = {
        "owner": returned("address", ANN.address),
        "getExecutorList": returned("address[]", executors),
    }
    contract = evm.deploy(rule_contract(RULE, **access))
    steps = {"A1": {"rule": contract, "onValid": {"spawns": ["B1"]}}, "B1": {"rule": contract}}
    text = json.dumps({"id": "orders", "structure": steps}, separators=(",", ":"))
    return evm.deploy(registry({"orders": text}, **access)), hash_of(text)


def test_a_session_is_started_by_owner_or_executor_once_for_each_number() -> None:
    async def go() -> None:
        evm = Evm()
        where, pinned = deployed(evm, [BOB.address])
        chain = int(evm.eth_chainId(), 16)
        async with evm.served() as url, calling(chain_url=url, chain_id=0) as at:

            def asked(who: Wallet, number: int = 1, ostc_hash: str = pinned, **more: Any) -> Any:
                message = {"ostcId": "orders", "ostcHash": ostc_hash, "sessionId": number,
                           "maxTotalGas": 0, **more.pop("message", {})}  # fmt: skip
                permit = who.sign("SessionPermit", message, chainId=chain, **more)
                return {"stepId": "A1", "payload": {"n": 1, "__secret": "shhhh"},
                        "orchestration": where, "permit": permit}  # fmt: skip

            assert await at.ok("getCoreAddrs")
            told = await at.ok("validateDataTransfer", asked(ANN))
            assert (told["processId"], told["finalResult"]) == ("1:1", True)
            assert (told["payload"], told["outputPayload"]) == ({"n": 1}, {"n": 2})
            assert "shhhh" not in json.dumps(told)
            again = await at.refused("validateDataTransfer", asked(ANN))
            assert again[0] == "permit_nonce"
            assert f"session 1 of {ANN.address}, and the next one is 2" in again[1]
            assert (await at.refused("validateDataTransfer", asked(ANN, 7)))[0] == "permit_nonce"
            by_executor = await at.ok("validateDataTransfer", asked(BOB))
            assert by_executor["processId"] == "1:1", "two owners may both have a session 1"
            stranger = await at.refused("validateDataTransfer", asked(EVE))
            assert stranger[0] == "not_allowed"
            assert "neither owner nor executor" in stranger[1]
            assert await at.ok("getNextProcessId", {"from": EVE.address}) == {"nextProcessId": "1"}
            changed = await at.refused("validateDataTransfer", asked(ANN, 2, "0x" + "7" * 64))
            assert changed[0] == "hash_mismatch"
            gone = asked(ANN, 2, message={"ostcId": "gone"})
            assert (await at.refused("validateDataTransfer", gone))[0] == "unknown_ostc"
            late = asked(ANN, 2, message={"expiry": 1_700_000_000})
            assert (await at.refused("validateDataTransfer", late))[0] == "permit_expired"
            nowhere = {**asked(ANN, 2), "stepId": "NOWHERE"}
            assert "NOWHERE" in (await at.refused("validateDataTransfer", nowhere))[1]
            assert await at.ok("getNextProcessId", {"from": ANN.address}) == {"nextProcessId": "2"}
            little = asked(ANN, 2, message={"maxTotalGas": 5})
            told = await at.ok("validateDataTransfer", little)
            assert (told["finalResult"], told["ruleAction"]) == (False, "gas")

    run(go())


def test_a_start_has_to_pin_its_orchestration_and_what_else_is_signed_is_not_to_choose() -> None:
    async def go() -> None:
        evm = Evm()
        where, pinned = deployed(evm, [BOB.address])
        same_text, _ = deployed(evm, [])
        chain = int(evm.eth_chainId(), 16)
        async with evm.served() as url, calling(chain_url=url, chain_id=0) as at:

            def permit(ostc_hash: str = pinned, hash_type: str = "bytes32", **signed: Any) -> Any:
                message = {"ostcId": "orders", "ostcHash": ostc_hash, "sessionId": 1,
                           "maxTotalGas": 0, **signed}  # fmt: skip
                return ANN.sign("SessionPermit", message, hash_type, chainId=chain)

            start = {"orchestration": where, "stepId": "A1", "payload": {"n": 1}}
            for nothing, kind in ((ZERO, "bytes32"), (ZERO, "string"), ("", "string"),
                                  ("0x", "string"), ("0x0", "string")):  # fmt: skip
                refused = await at.refused(
                    "validateDataTransfer", {**start, "permit": permit(nothing, kind)}
                )
                assert refused[0] == "permit_unpinned", nothing
            whole = permit(orchestration=where, stepId="A1", payload='{"n": 7}')
            for key, other in (
                ("orchestration", same_text),
                ("stepId", "B1"),
                ("payload", {"n": 1}),
            ):
                bent = {"orchestration": where, "stepId": "A1", "payload": {"n": 7}, key: other}
                code, words = await at.refused("validateDataTransfer", {**bent, "permit": whole})
                assert (code, f"`{key}`" in words) == ("permit", True), words
            for text, code in (
                ("{", "permit_form"),
                ('{"n": 1, "n": 2}', "permit_form"),
                ("[1]", "params"),
            ):
                odd = {**start, "payload": {}, "permit": permit(payload=text)}
                assert (await at.refused("validateDataTransfer", odd))[0] == code
            assert await at.ok("getNextProcessId", {"from": ANN.address}) == {"nextProcessId": "1"}
            told = await at.ok("validateDataTransfer", {"permit": whole})
            assert (told["payload"], told["outputPayload"]) == ({"n": 7}, {"n": 8})

    run(go())


def test_without_a_node_nothing_is_started_and_without_a_chain_no_permit_holds() -> None:
    async def go() -> None:
        async with calling() as at:
            message = {"ostcId": "o", "ostcHash": HASH, "sessionId": 1, "maxTotalGas": 0}
            asked = {"orchestration": ANN.address, "permit": ANN.sign("SessionPermit", message)}
            code, words = await at.refused("validateDataTransfer", asked)
            assert (code, "set chain_url" in words) == ("no_chain", True)
        async with calling(chain_id=0) as at:
            code, words = await at.refused("listSessions", {"permit": XDALA})
            assert (code, "set chain_id or chain_url" in words) == ("no_chain", True)

    run(go())


# -- the envelope ----------------------------------------------------------------------------------


def test_what_is_no_call_is_answered_as_json_rpc_says() -> None:
    async def go() -> None:
        async with calling() as at:
            for body, number in (
                ({"method": "xgr_control", "id": 1}, -32600),
                ({"jsonrpc": "2.0", "id": 1, "method": 5}, -32600),
                ({"jsonrpc": "2.0", "id": [1], "method": "xgr_control"}, -32600),
                ([], -32600),
                ([{"jsonrpc": "2.0", "id": 1, "method": "a"}] * 21, -32600),
                ({"jsonrpc": "2.0", "id": 1, "method": "eth_call", "params": []}, -32601),
                ({"jsonrpc": "2.0", "id": 1, "method": "xgr_control", "params": []}, -32602),
                (
                    {"jsonrpc": "2.0", "id": 1, "method": "xgr_stepExecuted", "params": ["x"]},
                    -32602,
                ),
            ):
                reply = await at.raw(body)
                assert (reply.status, reply.json["error"]["code"]) == (200, number), body
            one = {"jsonrpc": "2.0", "method": "xgr_getCoreAddrs", "params": []}
            assert (await at.raw(one)).status == 204, "a notification has no answer"
            both = await at.raw([{**one, "id": 1}, {**one, "id": "b"}, one])
            assert [each["id"] for each in both.json] == [1, "b"]
            url = f"{at.door.server.url}/rpc"
            headers = {"Content-Type": "application/json"}
            async with at.door.session.post(url, data="{", headers=headers) as reply:
                assert (await reply.json())["error"]["code"] == -32700

    run(go())


def test_a_batch_asks_for_so_much_work_and_is_weighed_before_any_of_it_is_done() -> None:
    async def go() -> None:
        async with calling() as at:
            permit = ANN.sign("xdalaPermit", {})
            grant = {"grantee": BOB.address, "rights": 1, "expireAt": 9}
            given = {"permit": permit, "rid": HASH, "scope": 1, "entries": [grant]}
            each = {"jsonrpc": "2.0", "id": 1, "method": "xgr_manageGrants", "params": [given]}
            refused = (await at.raw([each] * 5)).json
            assert (refused["id"], refused["error"]["code"]) == (None, -32600)
            assert refused["error"]["data"]["code"] == "batch_work"
            assert (await at.ok("listGrants", {"permit": permit}))["items"] == []
            done = (await at.raw([each] * 4)).json
            assert all("result" in one for one in done)
            light = {"jsonrpc": "2.0", "id": 1, "method": "xgr_getPublicSale", "params": []}
            assert len((await at.raw([light] * 20)).json) == 20

    run(go())


def test_nothing_is_told_of_where_the_node_is_and_strangers_leave_no_lines() -> None:
    async def go() -> None:
        dead = f"http://127.0.0.1:{free_port()}/"
        async with calling(chain_url=dead, chain_id=0, require_tokens="yes") as at:
            _, words = await at.refused("wakeUpProcess", {"permit": XDALA})
            assert words == AWAY
            assert at.door.server.parts.store.audit(AuditFilter()) == []

    run(go())


@pytest.mark.parametrize("name", sorted(ABSENT))
def test_methods_that_are_not_here_say_why(name: str) -> None:
    async def go() -> None:
        async with calling() as at:
            code, words = await at.refused(name, {})
            assert code == "not_here"
            assert ABSENT[name] in words

    run(go())


def test_the_operator_decides_who_is_heard() -> None:
    core = {"jsonrpc": "2.0", "id": 1, "method": "xgr_getCoreAddrs", "params": []}

    async def go() -> None:
        async with calling(rpc_access="off") as at:
            reply = await at.raw(core)
            assert (reply.status, reply.code) == (404, "rpc_off")
        async with calling(rpc_access="token", require_tokens="yes") as at:
            assert (await at.raw(core)).status == 401
            at.token = at.door.token("read")
            assert (await at.raw(core)).code == "scope"
            at.token = at.door.token("operate")
            assert (await at.raw(core)).status == 200
        async with calling(require_tokens="yes") as at:
            assert (await at.raw(core)).status == 200, "permits decide"
            assert (await at.raw(core, Cookie="anabranch=x")).status in (200, 403)

    run(go())
    with pytest.raises(InputError, match="with the key of this server"):
        opened((), Settings(rpc_access="permit", chain_execution="send"))


def test_every_method_is_in_the_page_about_it() -> None:
    from pathlib import Path

    page = (Path(__file__).parents[3] / "docs" / "json-rpc.md").read_text()
    for method in (*METHODS, *(f"xgr_{name}" for name in ABSENT)):
        assert f"`{method}`" in page, method


# -- grants ----------------------------------------------------------------------------------------

RID = "0x" + "ab" * 32


def test_an_owner_has_so_many_grants_and_expired_ones_make_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(grants, "GRANTS_MAX", 3)

    async def go() -> None:
        async with calling() as at:

            async def give(who: Wallet, rid: int, *entries: Any) -> Any:
                permit = who.sign("xdalaPermit", {})
                asked = {"rid": f"0x{rid:064x}", "scope": 1, "entries": entries, "permit": permit}
                told = await at.call("manageGrants", asked)
                return told["result"] if "result" in told else told["error"]["data"]["code"]

            entry = {"grantee": BOB.address, "rights": 1, "expireAt": SOON}
            over = {**entry, "grantee": EVE.address, "expireAt": 9}
            assert await give(ANN, 1, entry, over) == {"upserted": 3}
            assert await give(ANN, 2, entry) == "too_many_grants", "two more would be four"
            assert await give(ANN, 1, {**entry, "rights": 2}) == {"upserted": 1}, "not a new one"
            assert await give(BOB, 2, entry) == {"upserted": 1}, "others have room of their own"
            own = {"grantee": ANN.address, "rights": 7, "expireAt": 9}
            assert await give(ANN, 3, own) == {"upserted": 1}
            assert await give(BOB, 3, entry) == "not_allowed", "an id stays whose it is"

    run(go())


def test_who_encrypted_something_says_who_may_read_it() -> None:
    async def go() -> None:
        async with calling() as at:

            async def give(who: Wallet, *entries: Any, **more: Any) -> Any:
                permit = who.sign("xdalaPermit", {})
                asked = {"rid": RID, "scope": 1, "entries": list(entries), "permit": permit, **more}
                return (await at.call("manageGrants", asked)).get("result")

            async def seen(who: Wallet, **more: Any) -> list[tuple[str, int]]:
                asked = {"permit": who.sign("xdalaPermit", {}), **more}
                items = (await at.ok("listGrants", asked))["items"]
                return [(one["grantee"], one["rights"]) for one in items]

            entry = {"grantee": BOB.address, "rights": 1, "expireAt": SOON, "encDEK": "0x1234"}
            assert await give(ANN, entry, sessionId="7") == {"upserted": 2}, "the owner has all"
            assert sorted(await seen(ANN)) == sorted([(BOB.address, 1), (ANN.address, 7)])
            assert await seen(BOB) == [(BOB.address, 1)]
            assert await seen(EVE) == []
            assert await seen(BOB, scope=2) == await seen(BOB, validAt=SOON + 1) == []
            assert await give(BOB, {**entry, "grantee": EVE.address}) is None, (
                "who reads gives none"
            )
            assert await give(EVE, entry, owner=EVE.address) is None
            assert await give(ANN, {**entry, "rights": 5}) == {"upserted": 1}
            assert await give(BOB, {**entry, "grantee": EVE.address}) == {"upserted": 1}
            assert await seen(EVE) == [(EVE.address, 1)]
            first = await at.ok("listGrants", {"permit": XDALA, "limit": 2})
            assert len(first["items"]) == 2
            rest = {"permit": XDALA, "limit": 2, "cursor": first["nextCursor"]}
            last = await at.ok("listGrants", rest)
            assert (len(last["items"]), last["nextCursor"]) == (1, 0)
            mistakes: list[dict[str, Any]] = [{"rid": "0x1"}, {"scope": 3}, {"entries": []}]
            for wrong in mistakes:
                asked = {"rid": RID, "scope": 1, "entries": [entry], "permit": XDALA, **wrong}
                assert (await at.call("manageGrants", asked))["error"]["code"] == -32602

    run(go())
