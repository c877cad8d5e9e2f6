"""What the holders of permits may do with sessions: the methods of the `xgr_` namespace.

Each takes its parameters as they came and gives what the public reference says. Who asks is whoever
signed the permit; nothing else of a request is believed. A method that needs no permit tells
nothing but numbers and whether something is over.

What the signature of a permit covers counts as it was signed. Where its type has no field for it,
what the request says counts: the type of the chain has none for registry, step and payload of a
start, so its `ostcHash` has to pin the orchestration.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from anabranch.dialects.xrc729.bundle import ADDRESS
from anabranch.dialects.xrc729.words import BUDGET, OWNER, SESSION
from anabranch.errors import AnabranchError, InputError, NotFound, Refused
from anabranch.operations.definitions.prepare import prepare
from anabranch.operations.runs.verbs import Verbs
from anabranch.operations.sessions.grants import found_grants, put_grants
from anabranch.operations.sessions.sessions import Sessions, estimated_gas
from anabranch.store.grant_ports import Grants
from anabranch.work.chain.permits import CONTROLS, PRECOMPILE, Permit, PermitRefused, verified

START_SECONDS = 5.0  # how long a start waits for its first step before it answers
LAST_MAX = 1000

T = TypeVar("T")
Params = Sequence[Any]
_HASH = re.compile(r"0x[0-9a-fA-F]{64}")


class NotHere(AnabranchError):
    """A method of the namespace that this engine does not have."""

    code = "not_here"


class ChainAccess(Protocol):
    """What has to be asked of a chain."""

    async def chain_id(self) -> int: ...

    async def load(self, registry: str, ostc_id: str, ostc_hash: str, starter: str) -> str:
        """The bundle of an orchestration that `starter` may start."""


class Read(Protocol):
    """Reads of sessions beside the event loop."""

    async def __call__(self, work: Callable[[Sessions], T]) -> T: ...


class Compute(Protocol):
    """Arithmetic beside the event loop, within the share of whoever asks."""

    async def __call__(self, work: Callable[[], T]) -> T: ...


class RpcCall(msgspec.Struct, frozen=True):
    """One call, and what was done with it, for the record."""

    method: str
    signer: str = ""
    subject: str = ""


class RpcMethods:
    def __init__(
        self,
        sessions: Sessions,
        verbs: Verbs,
        chain: ChainAccess,
        now: Callable[[], int],  # milliseconds
        first_step: Callable[[str], Awaitable[None]],  # returns when it has ended
        grants: Grants,
        read: Read,
        compute: Compute,
    ) -> None:
        self._read, self._compute = read, compute
        self._grants = grants
        self._sessions = sessions
        self._verbs = verbs
        self._chain = chain
        self._now = now
        self._first_step = first_step
        self.last = RpcCall("")  # what the last call was about

    async def call(self, method: str, params: Params) -> Any:
        name = method.removeprefix("xgr_")
        handler = _METHODS.get(name) if method.startswith("xgr_") else None
        if handler is None:
            reason = ABSENT.get(name, "") if method.startswith("xgr_") else ""
            raise NotHere(f"there is no method {method[:80]!r}" + (f": {reason}" if reason else ""))
        self.last = RpcCall(method)
        return await handler(self, params)

    # -- who asks ------------------------------------------------------------------------------

    async def _permit(self, given: Any, *kinds: str) -> Permit:
        chain_id = await self._chain.chain_id()
        now = self._now() // 1000
        permit = await self._compute(lambda: verified(given, kinds, chain_id=chain_id, now=now))
        self.last = RpcCall(self.last.method, permit.signer, self.last.subject)
        return permit

    def _about(self, subject: str) -> None:
        self.last = RpcCall(self.last.method, self.last.signer, subject)

    # -- numbers -------------------------------------------------------------------------------

    async def core_addresses(self, _params: Params) -> dict[str, str]:
        try:
            chain = hex(await self._chain.chain_id())
        except AnabranchError:
            chain = ""
        return {"grants": "", "publicSale": "", "precompile": PRECOMPILE, "chainId": chain}

    async def public_sale(self, _params: Params) -> dict[str, str]:
        return {"publicSale": ""}

    async def grant_fee(self, _params: Params) -> dict[str, str]:
        return {"wei": "0x0"}  # nothing is charged here

    async def next_process_id(self, params: Params) -> dict[str, str]:
        owner = _address(_object(params).get("from"), "`from`")
        return {"nextProcessId": str(await self._next_number(owner))}

    async def _next_number(self, owner: str) -> int:
        return await self._read(lambda by: by.next_number(owner))

    async def estimate_rule_gas(self, params: Params) -> dict[str, Any]:
        given = _object(params)
        rule = given.get("json")
        if not isinstance(rule, str | Mapping):
            raise InputError("`json` is the text of a rule document", code="params")
        counts = {
            "valid_spawns": _count(given.get("validSpawns", 1), "`validSpawns`"),
            "invalid_spawns": _count(given.get("invalidSpawns", 1), "`invalidSpawns`"),
            "encrypted": given.get("encrypted") is True,
        }
        found = await self._compute(lambda: estimated_gas(rule, **counts))
        return {
            "validationGas": found["common"],
            "onValid": {"validationGas": found["valid"], "total": found["totalValid"]},
            "onInvalid": {"validationGas": found["invalid"], "total": found["totalInvalid"]},
            **{key: found[key] for key in ("totalValid", "totalInvalid", "totalWorstCase")},
        }

    async def step_executed(self, params: Params) -> bool | None:
        owner, session = _address(_at(params, 0), "the owner"), _session(_at(params, 1))
        iteration = _count(_at(params, 2), "the iteration")
        return await self._read(lambda by: by.step_executed(session, iteration, owner))

    async def session_alive(self, params: Params) -> bool:
        owner, session = _address(_at(params, 0), "the owner"), _session(_at(params, 1))
        return await self._read(lambda by: by.session_alive(session, owner))

    # -- sessions ------------------------------------------------------------------------------

    async def start(self, params: Params) -> dict[str, Any]:
        """Everything is looked at before anything begins: a start that fails leaves nothing."""
        given = _object(params)
        permit = await self._permit(given.get("permit"), "SessionPermit")
        _require_pinned(permit)
        registry = _address(_covered(permit, given, "orchestration"), "`orchestration`")
        payload, step = _payload(permit, given), str(_covered(permit, given, "stepId") or "")
        owner, number = permit.signer, permit.number("sessionId")
        coming = await self._next_number(owner)
        if number != coming:
            raise _wrong_nonce(owner, number, coming)
        text = await self._chain.load(
            registry, permit.text("ostcId"), permit.text("ostcHash"), owner
        )
        prepared = await self._compute(lambda: prepare(text))
        labels = {OWNER: owner, SESSION: str(number)}
        if gas := permit.number("maxTotalGas"):
            labels[BUDGET] = str(gas)
        try:
            run = await self._verbs.start(
                prepared,
                payload,
                step=step or None,
                labels=labels,
                allow_extra_input=True,
            )
        except Refused as error:
            if error.code != "session_number":
                raise
            coming = await self._next_number(owner)
            raise _wrong_nonce(owner, number, coming) from None
        self._about(run)
        shown = {key: value for key, value in payload.items() if not key.startswith("__")}
        return {**await self._begun(run, number), "payload": shown}

    async def _begun(self, run: str, number: int) -> dict[str, Any]:
        """What the first step came to, if that is known soon."""
        try:
            async with asyncio.timeout(START_SECONDS):
                await self._first_step(run)
        except TimeoutError:
            pass
        receipts = await self._read(lambda by: by.receipts(run, iteration=1))
        found = receipts[0] if receipts else {}
        valid = found.get("extras", {}).get("valid") if found else None
        return {
            "processId": f"{number}:1",
            "status": "done" if found else "queued",
            "finalResult": valid is True,
            "executedSteps": receipts,
            "ruleAction": found.get("error_class", ""),
            "outputPayload": found.get("payload") or {},
        }

    async def wake(self, params: Params) -> dict[str, Any]:
        given = _object(params)
        permit = await self._permit(given.get("permit"), *CONTROLS)
        _require_action(permit, "wake")
        owner, session = _runner(permit), str(permit.number("sessionId"))
        step, process = permit.text("stepId"), str(_covered(permit, given, "processId") or "")
        if bool(step) == bool(process):
            raise InputError(
                "name `processId` and sign no `stepId`, or sign a `stepId` and name no process",
                code="params",
            )
        _check_runner(given, owner)
        asked = str(given.get("stepId") or "")
        if asked and asked != step:
            raise PermitRefused(f"the permit is for step {step!r}, not for {asked[:64]!r}")
        if process and process.partition(":")[0] != session:
            raise PermitRefused(f"the permit is for session {session}, not for {process[:64]!r}")
        payload = _payload(permit, given)
        self._about(f"{owner}/{process or session}")
        told = await self._sessions.wake_up_process(
            process or session,
            step=step,
            payload=payload,
            runner=permit.signer,
            actor=permit.signer,
            owner=owner,
        )
        return {**told, "owner": owner, "sessionId": int(session), "rootPid": session}

    async def control(self, params: Params) -> dict[str, Any]:
        given = _object(params)
        permit = await self._permit(given.get("permit"), *CONTROLS)
        action = permit.text("action")
        if given.get("action") not in (None, "", action):
            said = f"the permit is for {action!r}, not for {str(given['action'])[:40]!r}"
            raise PermitRefused(said)
        _require_action(permit, "kill")
        owner, session = _runner(permit), str(permit.number("sessionId"))
        self._about(f"{owner}/{session}")
        told = await self._sessions.control(
            session, "kill", reason="killed", actor=permit.signer, runner=permit.signer, owner=owner
        )
        return {**told, "owner": owner, "processId": int(session), "status": "killed"}

    async def list_sessions(self, params: Params) -> dict[str, Any]:
        given = _object(params)
        if given.get("view") not in (None, "", "raw"):
            raise InputError('`view` is "raw", or left out', code="params")
        last = min(_count(given.get("last") or 100, "`last`"), LAST_MAX)
        if "controlPermit" in given:
            return {"sessions": await self._wakeable(given, last)}
        permit = await self._permit(given.get("permit"), "xdalaPermit")
        root = str(given.get("rootId") or "")
        rows = await self._owned(permit.signer, root, last)
        parent = str(given.get("parentPid") or "")
        return {"sessions": [_row(one) for one in rows if not parent or one["parentPid"] == parent]}

    async def _owned(self, owner: str, root: str, last: int) -> list[dict[str, Any]]:
        if not root:
            return await self._read(lambda by: by.list_sessions(owner=owner, last=last))
        session = _session(root)
        try:
            return await self._read(lambda by: by.list_sessions(owner=owner, run=session))
        except NotFound:
            return []

    async def _wakeable(self, given: Mapping[str, Any], last: int) -> list[dict[str, Any]]:
        permit = await self._permit(given.get("controlPermit"), "ControlPermitV2")
        _require_action(permit, "wake")
        owner, session = _runner(permit), str(permit.number("sessionId"))
        _check_runner(given, owner)
        root = given.get("rootId")
        if root not in (None, "") and str(root) != session:
            raise PermitRefused(f"the permit is for session {session}, not for {str(root)[:40]!r}")
        try:
            rows = await self._read(
                lambda by: by.wakeable(
                    permit.signer,
                    owner=owner,
                    run=session,
                    step=permit.text("stepId") or None,
                    last=last,
                )
            )
        except NotFound:
            rows = []
        return [
            {key: value for key, value in _row(one).items() if key != "parentPid"} for one in rows
        ]

    # -- grants --------------------------------------------------------------------------------

    async def manage_grants(self, params: Params) -> dict[str, int]:
        given = _object(params)
        permit = await self._permit(given.get("permit"), "xdalaPermit")
        self._about(str(given.get("rid"))[:80])
        now = self._now() // 1000
        count = await asyncio.to_thread(put_grants, self._grants, given, permit.signer, now)
        return {"upserted": count}

    async def list_grants(self, params: Params) -> dict[str, Any]:
        given = _object(params)
        permit = await self._permit(given.get("permit"), "xdalaPermit")
        return await asyncio.to_thread(found_grants, self._grants, given, permit.signer)


Method = Callable[[RpcMethods, Params], Awaitable[Any]]

_METHODS: Mapping[str, Method] = {
    "getCoreAddrs": RpcMethods.core_addresses,
    "getPublicSale": RpcMethods.public_sale,
    "getGrantFeePerYear": RpcMethods.grant_fee,
    "getNextProcessId": RpcMethods.next_process_id,
    "estimateRuleGas": RpcMethods.estimate_rule_gas,
    "stepExecuted": RpcMethods.step_executed,
    "sessionAlive": RpcMethods.session_alive,
    "validateDataTransfer": RpcMethods.start,
    "wakeUpProcess": RpcMethods.wake,
    "control": RpcMethods.control,
    "listSessions": RpcMethods.list_sessions,
    "manageGrants": RpcMethods.manage_grants,
    "listGrants": RpcMethods.list_grants,
}
METHODS = tuple(f"xgr_{name}" for name in _METHODS)
#: What a call is of the work that a batch may ask for; one that gives a number is 1.
_WORK: Mapping[str, int] = {
    "xgr_stepExecuted": 2,
    "xgr_estimateRuleGas": 5,
    "xgr_validateDataTransfer": 10,
    "xgr_wakeUpProcess": 5,
    "xgr_control": 5,
    "xgr_listSessions": 5,
    "xgr_manageGrants": 5,
    "xgr_listGrants": 5,
}
#: What the namespace has elsewhere, and why not here.
ABSENT: Mapping[str, str] = {
    "getCirculatingSupply": "an engine has no coins; ask a node of the chain",
    "getEncryptedLogInfo": "receipts are read from the log here, not from transactions",
    "listWakeupTargetsByAddress": "call xgr_listSessions with `controlPermit`: it lists what the "
    "signer of the permit may wake",
    "encryptXRC137": "how keys are wrapped for a reader is not public in full",
    "getXRC137Meta": "ask the contract: getRule() and encrypted()",
}


# -- parameters ------------------------------------------------------------------------------------


def work_of(method: Any) -> int:
    return _WORK.get(method, 1) if isinstance(method, str) else 1


def _object(params: Params) -> Mapping[str, Any]:
    if len(params) == 1 and isinstance(params[0], Mapping):
        return params[0]
    raise InputError("`params` is a list with one object", code="params")


def _at(params: Params, place: int) -> Any:
    if len(params) > place:
        return params[place]
    said = "`params` is a list: owner, sessionId and for a step its iteration"
    raise InputError(said, code="params")


def _address(value: Any, what: str) -> str:
    if isinstance(value, str) and ADDRESS.fullmatch(value):
        return value
    raise InputError(f"{what} is an address, 0x and 40 hex digits", code="params")


def _session(value: Any) -> str:
    text = str(value) if isinstance(value, int | str) and not isinstance(value, bool) else ""
    if text.isascii() and text.isdecimal() and len(text) <= 18:
        return text
    raise InputError("a session is named by its number, a decimal text", code="params")


def _count(value: Any, what: str) -> int:
    text = str(value) if isinstance(value, int | str) and not isinstance(value, bool) else ""
    if text.isascii() and text.isdecimal() and len(text) <= 15:
        return int(text)
    raise InputError(f"{what} is a whole number", code="params")


def _require_action(permit: Permit, wanted: str) -> None:
    action = permit.text("action")
    if action == wanted:
        return
    gone = " (pause and resume are no part of the interface any more)"
    more = gone if action in ("pause", "resume") else ""
    raise PermitRefused(f"the permit is for {action[:40]!r}, not for {wanted!r}{more}")


def _runner(permit: Permit) -> str:
    """Whose session is meant: who signed, or whom a permit of the second form names."""
    return (permit.text("runner") or permit.signer).lower()


def _check_runner(given: Mapping[str, Any], owner: str) -> None:
    """What a request says beside its permit must not differ from it."""
    named = given.get("runner")
    if named is not None and _address(named, "`runner`").lower() != owner:
        raise PermitRefused(f"the permit is for sessions of {owner}, not of {named}")


def _require_pinned(permit: Permit) -> None:
    pin = permit.text("ostcHash")
    if not _HASH.fullmatch(pin) or not int(pin, 16):
        raise PermitRefused(
            "the permit pins no orchestration: sign `ostcHash`, the keccak256 of its text in the "
            "registry (`anabranch registry` lists it)",
            code="permit_unpinned",
        )


def _covered(permit: Permit, given: Mapping[str, Any], key: str) -> Any:
    """As it was signed, or where the permit has no such field, as it was sent."""
    sent = given.get(key)
    if key not in permit.message:
        return sent
    signed = permit.message[key]
    if sent not in (None, "") and str(sent).lower() != str(signed).lower():
        raise PermitRefused(f"the permit is for `{key}` {signed!r:.80}, not for {sent!r:.80}")
    return signed


def _payload(permit: Permit, given: Mapping[str, Any]) -> Mapping[str, Any]:
    """It is signed as a text of JSON."""
    payload = given.get("payload") or {}
    if "payload" in permit.message:
        text = permit.text("payload") or "{}"
        try:
            signed = msgspec.json.decode(text)
            json.loads(text, object_pairs_hook=_require_distinct)
        except (msgspec.DecodeError, ValueError, RecursionError):
            raise PermitRefused("`payload` of the permit is not JSON", code="permit_form") from None
        if payload and payload != signed:
            raise PermitRefused("the permit is for another `payload` than was sent")
        payload = signed
    if not isinstance(payload, Mapping):
        raise InputError("`payload` is an object", code="params")
    return payload


def _require_distinct(pairs: Sequence[tuple[str, Any]]) -> None:
    if len(dict(pairs)) != len(pairs):
        raise ValueError("a key stands twice: two readers may take different values")


def _wrong_nonce(owner: str, number: int, coming: int) -> PermitRefused:
    return PermitRefused(
        f"the permit is for session {number} of {owner}, and the next one is {coming}: ask "
        "xgr_getNextProcessId and sign again",
        code="permit_nonce",
    )


def _row(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row as the interface has it: instants in seconds, no id of a run, no word of ours."""
    kept = {key: value for key, value in row.items() if key not in ("run", "outcome", "error")}
    return {**kept, "updated": row["updated"] // 1000}
