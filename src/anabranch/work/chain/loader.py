"""Loading an orchestration from its registry, with the rules it names.

Everything is read at one block, so that graph and rules belong together even when somebody changes
them meanwhile. A run is then started from this copy: the graph of a session never changes. Rules
are fetched again by every step, unless they are pinned to what was loaded.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from anabranch.dialects.xrc729.bundle import Bundle, BundleDocument, bundle_text
from anabranch.dialects.xrc729.read import STEPS_MAX
from anabranch.errors import InputError
from anabranch.net.problems import Position, Problem, Severity
from anabranch.work.chain import abi
from anabranch.work.chain.abi_types import type_of
from anabranch.work.chain.authority import (
    Authority,
    ContractAccess,
    access_of,
    check_authority,
    everybody,
)
from anabranch.work.chain.contracts import (
    address,
    block_number,
    call_data,
    chain_id,
    code_at,
    eth_call,
    is_address,
)
from anabranch.work.chain.documents import (
    ENCRYPTED,
    ORCHESTRATION_BYTES_MAX,
    RULE_BYTES_MAX,
    hash_of,
    json_of,
    rule_bytes,
    stored_bytes,
    text_of,
)
from anabranch.work.chain.errors import (
    BadAnswer,
    BadDocument,
    BadRules,
    DocumentTooLarge,
    HashMismatch,
    NoContract,
    NotARegistry,
    Reverted,
    UnknownOrchestration,
)
from anabranch.work.chain.rpc import JsonRpc, RpcOptions
from anabranch.work.rule.ports import RuleText

ZERO_HASH = "0x" + 64 * "0"

_HASH = re.compile(r"0x[0-9a-fA-F]{64}")
META = tuple(map(type_of, ("bytes32", "uint256", "uint64")))
_AT_ONCE = 8  # rules read at the same time
RULES_BYTES_MAX = 8 * 1024 * 1024  # of all rules of one orchestration


class LoadedOrchestration(msgspec.Struct, frozen=True):
    """An orchestration as it stood at one block."""

    registry: str
    id: str
    text: str
    hash: str  # keccak256 of the stored bytes
    block: int
    rules: Mapping[str, RuleText]  # by address in lower case
    owner: str | None = None
    executors: tuple[str, ...] | None = None  # None: the registry has no list
    problems: tuple[Problem, ...] = ()  # warnings; errors have been raised
    version: int | None = None  # of registries that count
    chain_id: int | None = None
    pin_rules: bool = False

    def bundle(self) -> str:
        """One text that the dialect reads and that a run is stored with. Without pinned rules it
        holds none, and every step asks its contract."""
        place = f"{self.registry}/{self.id}"
        rules = self.rules if self.pin_rules else {}
        chain = {
            "registry": self.registry,
            "ostcId": self.id,
            "ostcHash": self.hash,
            "block": self.block,
            "pinned": self.pin_rules,
        }
        if self.chain_id is not None:
            chain["chainId"] = self.chain_id
        return bundle_text(
            Bundle(
                orchestration=BundleDocument(self.text, file=place, origin=f"chain@{self.block}"),
                rules={
                    contract: BundleDocument(
                        rule.text, file=contract, address=contract, origin=rule.origin
                    )
                    for contract, rule in rules.items()
                },
                chain=chain,
            )
        )


async def load_orchestration(
    rpc_url: str,
    registry: str,
    ostc_id: str,
    *,
    expect_hash: str | None = None,
    pin_rules: bool = False,
    encrypted_rules: bool = False,
    starter: str = "",
    authority: Authority = everybody,
    options: RpcOptions | None = None,
) -> LoadedOrchestration:
    """The orchestration as it stands now. `.bundle()` of it is what a run is started with.

    A hash of zeros pins nothing. Raises a `ChainError` that says which of the many things was
    not as it should be; nothing has been started then."""
    rpc = JsonRpc(rpc_url, options)
    try:
        loader = _Loader(rpc, encrypted_rules, starter, authority)
        return await loader.load(registry, ostc_id, expect_hash, pin_rules)
    finally:
        await rpc.close()


class _Loader:
    def __init__(self, rpc: JsonRpc, encrypted: bool, starter: str, authority: Authority) -> None:
        self._rpc = rpc
        self._encrypted = encrypted  # there is somebody who can open encrypted rules
        self._starter = starter
        self._authority = authority
        self._bytes_left = RULES_BYTES_MAX

    async def load(
        self, registry: str, ostc_id: str, expect_hash: str | None, pin_rules: bool
    ) -> LoadedOrchestration:
        where = address(registry, "the registry")
        expected = _hash(expect_hash)
        block = await block_number(self._rpc)
        tag = hex(block)
        if not await code_at(self._rpc, where, tag):
            raise NoContract(f"there is no contract at {where}")
        what = f"the orchestration {ostc_id[:80]!r}"
        raw = await self._orchestration(where, ostc_id, tag)
        text = text_of(raw, ORCHESTRATION_BYTES_MAX, what)
        found = hash_of(raw)
        version = await self._check_hash(where, ostc_id, tag, found, expected)
        access = await self._allowed(where, tag)
        document = json_of(text, what)  # and not before it is known to be what was asked for
        notes = _Notes(f"{where}/{ostc_id}")
        _check_id(document, ostc_id, notes)
        rules = await self._rules(document, tag, block, notes)
        return LoadedOrchestration(
            registry=where,
            id=ostc_id,
            text=text,
            hash=found,
            block=block,
            rules=rules,
            owner=access.owner,
            executors=access.executors,
            problems=tuple(notes.problems),
            version=version,
            chain_id=await chain_id(self._rpc),
            pin_rules=pin_rules,
        )

    async def _orchestration(self, registry: str, ostc_id: str, tag: str) -> bytes:
        try:
            raw = await stored_bytes(self._rpc, registry, "getOSTC(string)", (ostc_id,), tag)
        except Reverted as error:
            said = f" ({error.reason})" if error.reason else ""
            raise UnknownOrchestration(
                f"{registry} has no orchestration {ostc_id[:80]!r}{said}, or it is no registry"
            ) from None
        except BadAnswer as error:
            raise BadAnswer(f"{registry}: the answer of getOSTC is broken: {error.what}") from None
        if raw is None:
            raise NotARegistry(f"{registry} is not an XRC-729 contract: getOSTC answers nothing")
        return raw

    async def _check_hash(
        self, registry: str, ostc_id: str, tag: str, found: str, expected: str | None
    ) -> int | None:
        """Compare with what was asked for and with what the registry keeps; its version if any."""
        if expected is not None and expected != found:
            raise HashMismatch(f"{ostc_id[:80]!r} has the hash {found}, but {expected} is pinned")
        try:
            data = call_data("getOSTCMeta(string)", (ostc_id,))
            kept, version, _ = abi.decode(META, await eth_call(self._rpc, registry, data, tag))
        except (Reverted, BadAnswer):
            return None  # registries have this only since 2026
        if kept not in (found, ZERO_HASH):
            raise HashMismatch(
                f"the registry keeps the hash {kept} for {ostc_id[:80]!r}, but the text it "
                f"returns has {found}",
                hint="the node or the registry cannot be trusted",
            )
        return int(version)

    async def _allowed(self, contract: str, tag: str) -> ContractAccess:
        access = await access_of(self._rpc, contract, tag)
        check_authority(self._starter, access, self._authority)
        return access

    # -- rules -------------------------------------------------------------------------------

    async def _rules(
        self, document: Any, tag: str, block: int, notes: _Notes
    ) -> dict[str, RuleText]:
        gate = asyncio.Semaphore(_AT_ONCE)
        wanted = _rule_addresses(document, notes)
        if len(wanted) > STEPS_MAX:  # none of them is asked for
            raise DocumentTooLarge(
                f"the orchestration names {len(wanted):,} rule contracts, more than the "
                f"{STEPS_MAX} steps that one may have"
            )

        async def fetch(contract: str, steps: str) -> RuleText | None:
            found = None
            async with gate:
                try:
                    found = await self._rule(contract, tag, block)
                except (Reverted, NoContract, BadAnswer, BadDocument, DocumentTooLarge) as error:
                    notes.add("unresolved-rule", f"the rule of {steps}: {error.what}", error.hint)
                self._require_room()
                return found

        try:
            async with asyncio.TaskGroup() as group:
                tasks = {
                    contract: group.create_task(fetch(contract, ", ".join(steps)))
                    for contract, steps in wanted.items()
                }
        except BaseExceptionGroup as several:
            raise several.exceptions[0] from None
        notes.raise_errors()
        found = {contract: task.result() for contract, task in tasks.items()}
        return {contract: rule for contract, rule in found.items() if rule is not None}

    def _require_room(self) -> None:
        """Also after a text that was refused: it was read all the same."""
        if self._bytes_left < 0:
            raise DocumentTooLarge(
                f"the rules of the orchestration have more than {RULES_BYTES_MAX:,} bytes together"
            )

    async def _rule(self, contract: str, tag: str, block: int) -> RuleText:
        if not await code_at(self._rpc, contract, tag):
            raise NoContract(f"there is no contract at {contract}")
        if self._authority is not everybody:
            await self._allowed(contract, tag)
        raw = await rule_bytes(self._rpc, contract, tag)
        self._bytes_left -= len(raw)
        text = text_of(raw, RULE_BYTES_MAX, f"the rule at {contract}")
        if text.startswith(ENCRYPTED):
            if not self._encrypted:
                raise BadDocument(
                    f"the rule at {contract} is encrypted", hint="configure a decryptor for rules"
                )
        else:
            json_of(text, f"the rule at {contract}")
        return RuleText(text, hash_of(raw), f"chain@{block}")


class _Notes:
    """Problems of a load. There are no lines: the place is the registry and the id."""

    def __init__(self, place: str) -> None:
        self._position = Position(1, 1, place)
        self.problems: list[Problem] = []

    def add(self, code: str, message: str, hint: str, severity: Severity = "error") -> None:
        self.problems.append(Problem(self._position, code, message, hint, severity))

    def raise_errors(self) -> None:
        if wrong := [problem for problem in self.problems if problem.severity == "error"]:
            raise BadRules(sorted(wrong, key=str))


def _hash(text: str | None) -> str | None:
    """The pinned hash, if there is one: zeros say that nothing is pinned."""
    if text is None or text.lower() == ZERO_HASH:
        return None
    if not _HASH.fullmatch(text):
        raise InputError(f"{text[:80]!r} is no hash: write 0x and 64 hexadecimal digits")
    return text.lower()


def _check_id(document: Any, ostc_id: str, notes: _Notes) -> None:
    own = document.get("id") if isinstance(document, dict) else None
    if isinstance(own, str) and own != ostc_id:
        notes.add(
            "other-id",
            f"the document calls itself {own[:80]!r}, the registry {ostc_id[:80]!r}",
            "store it under its own id",
            "warning",
        )


def _rule_addresses(document: Any, notes: _Notes) -> dict[str, list[str]]:
    """The rule contracts with the steps that name them. What else is wrong with the document is
    for the dialect to say, which knows the lines."""
    structure = document.get("structure") if isinstance(document, dict) else None
    wanted: dict[str, list[str]] = {}
    for step, node in structure.items() if isinstance(structure, dict) else ():
        rule = node.get("rule") if isinstance(node, dict) else None
        if is_address(rule):
            wanted.setdefault(rule.lower(), []).append(step[:80])
        elif isinstance(rule, str):
            notes.add(
                "unresolved-rule",
                f"the rule of {step[:80]} is {rule[:80]!r}, which is no address",
                "names of rules have to be replaced by addresses before a document is stored",
            )
    return wanted
