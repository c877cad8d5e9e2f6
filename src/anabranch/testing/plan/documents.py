"""Test plans and scenarios of the vendor's test suite, read from JSON.

    xgr.test-plan        one bundle, one start, and what is expected of the session
    xgr.multi-test-plan  `plans`, a list of them
    xgr.test-scenario    several sessions that meet: start, wait for a step, look
    xgr.multi-test-scenario  `scenarios`, a list of them

A bundle (`xgr-multi-bundle@1`) may have `plans` and `scenarios` beside its bundles; a plan without
a bundle of its own then takes the one it names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from msgspec.structs import replace

from anabranch.dialects.findings import Findings
from anabranch.dialects.nodes import Fields
from anabranch.dialects.source import read_source
from anabranch.dialects.xrc729.bundle import ADDRESS, HASH, Bundle, bundle_text, hash_of
from anabranch.dialects.xrc729.multi_bundle import (
    NamedBundle,
    canonical_text,
    hashes_of,
    is_multi_bundle,
    read_multi_bundle,
)
from anabranch.errors import DefinitionError, InputError
from anabranch.keccak import keccak256

PLAN, PLANS = "xgr.test-plan", "xgr.multi-test-plan"
SCENARIO, SCENARIOS = "xgr.test-scenario", "xgr.multi-test-scenario"
MODES = ("allOf", "anyOf")
STATUSES = ("running", "waiting", "done", "aborted")
OPERATORS = (
    "eq", "ne", "exists", "missing", "gt", "gte", "lt", "lte", "contains", "notContains",
    "startsWith", "endsWith", "regex",
)  # fmt: skip
STEPS = ("startSession", "waitForStep", "assertSession")
_SETUP = re.compile(r"\$\{addr:([A-Za-z0-9_.-]+)\}")

Json = Mapping[str, Any]


class Assertion(msgspec.Struct, frozen=True):
    where: str  # "input", "api" or "read"
    field: str
    op: str
    value: Any
    value_type: str = ""


class Alternative(msgspec.Struct, frozen=True):
    """What one process of a session should have come to; None and "" are anything."""

    step: str
    occurrence: int = 1
    exist: bool = True
    valid: bool | None = None
    status: str = ""
    assertions: tuple[Assertion, ...] = ()


class Expectation(msgspec.Struct, frozen=True):
    label: str
    mode: str
    alternatives: tuple[Alternative, ...]


class Expectations(msgspec.Struct, frozen=True):
    timeline: tuple[Expectation, ...] = ()
    final_statuses: tuple[str, ...] = ()
    final_step: str = ""


class Plan(msgspec.Struct, frozen=True):
    title: str
    text: str  # our bundle: what is run
    start: str
    payload: Json
    max_gas: int
    owner: str  # aliases of people
    starter: str
    executors: tuple[str, ...]
    expects: Expectations
    contracts: Mapping[str, str] = {}  # alias → address


class ScenarioStep(msgspec.Struct, frozen=True):
    id: str
    kind: str
    given: Json
    expects: Expectations = Expectations()


class Scenario(msgspec.Struct, frozen=True):
    title: str
    plans: Mapping[str, Plan]
    actors: Mapping[str, str]  # name → alias
    steps: tuple[ScenarioStep, ...]


class Tests(msgspec.Struct, frozen=True):
    plans: tuple[Plan, ...]
    scenarios: tuple[Scenario, ...]


def address_of(alias: str) -> str:
    """The address of somebody, or of a contract, that is only there for a test."""
    return "0x" + keccak256(f"anabranch test {alias}".encode())[-20:].hex()


def is_test_file(document: Any) -> bool:
    return isinstance(document, dict) and str(document.get("kind", "")).startswith("xgr.")


def read_tests(files: Mapping[str, str]) -> Tests:
    """The plans and scenarios of some files; bundles among them serve all plans."""
    documents = {name: _json(text, name) for name, text in files.items()}
    bundles = [
        bundle
        for name, document in documents.items()
        if "bundles" in document and not is_test_file(document)
        for bundle in _bundles(files[name], name)
    ]
    plans: list[Plan] = []
    scenarios: list[Scenario] = []
    for name, document in documents.items():
        for number, each in enumerate(_listed(document, PLAN, PLANS, "plans")):
            plans.append(_plan(each, f"{name}: plans[{number}]", bundles))
        for number, each in enumerate(_listed(document, SCENARIO, SCENARIOS, "scenarios")):
            scenarios.append(_scenario(each, f"{name}: scenarios[{number}]", bundles))
    return Tests(tuple(plans), tuple(scenarios))


def _json(text: str, name: str) -> Json:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name} is not JSON: {error}", code="plan") from None
    if not isinstance(found, dict):
        raise InputError(f"{name} is no bundle, plan or scenario: it is no mapping", code="plan")
    kind = found.get("kind", "")
    known = (PLAN, PLANS, SCENARIO, SCENARIOS)
    if "bundles" not in found and kind not in known:
        raise InputError(
            f"{name} is no bundle, plan or scenario: `kind` is {kind!r}, not one of "
            f"{', '.join(known)}",
            code="plan",
        )
    return found


def _listed(document: Json, one: str, several: str, key: str) -> Sequence[Any]:
    if document.get("kind") == one:
        return [document]
    if document.get("kind") == several or not is_test_file(document):
        found: Sequence[Any] = _a(list, document.get(key, []), f"`{key}`")
        return found
    return ()


def _bundles(text: str, name: str) -> list[NamedBundle]:
    document = read_source(text, file=name)
    root, findings = document.root, Findings()
    if not isinstance(root, Fields) or not is_multi_bundle(root):
        raise InputError(f"{name} is no bundle of the format xgr-multi-bundle@1", code="plan")
    found = read_multi_bundle(name, root, findings)
    wrong = [one for one in (*document.problems, *findings.problems) if one.severity == "error"]
    if wrong:
        raise DefinitionError(wrong)
    return found


# -- plans -----------------------------------------------------------------------------------------


def _plan(given: Any, where: str, bundles: Sequence[NamedBundle]) -> Plan:
    plan = _a(dict, given, where)
    source, runtime = _part(plan, "source", where), _part(plan, "runtime", where)
    execution = _part(plan, "execution", where)
    contracts = _contracts(plan, where)
    bundle, document = _bundle_of(source, runtime, where, bundles)
    _check_hash(source, runtime, document, where)
    payload = dict(_part(runtime, "payload", where))
    if "wakeUp" in runtime:
        payload.setdefault("__wakeUp", runtime["wakeUp"])
    owner = str(execution.get("ownerAlias") or "owner")
    rules = {
        alias: contracts.get(alias) or rule.address or address_of(f"{bundle.bundle_id}/{alias}")
        for alias, rule in bundle.bundle.rules.items()
    }
    setup = _setup(plan, where)
    text = filled(bundle_text(_deployed(bundle.bundle, rules)), setup, set(rules), where)
    return Plan(
        title=str(plan.get("title") or plan.get("id") or where),
        text=text,
        start=str(runtime.get("stepId") or ""),
        payload=payload,
        max_gas=_whole(runtime.get("maxTotalGas", 0), f"{where}: runtime.maxTotalGas"),
        owner=owner,
        starter=str(execution.get("starterAlias") or owner),
        executors=tuple(map(str, _a(list, execution.get("xrc729Executors", []), where))),
        expects=_expectations(_part(plan, "expectations", where), where),
        contracts={**contracts, **rules, **setup},
    )


def _bundle_of(
    source: Json, runtime: Json, where: str, bundles: Sequence[NamedBundle]
) -> tuple[NamedBundle, Json]:
    raw = source.get("rawBundleJson")
    if raw:
        text = raw if isinstance(raw, str) else json.dumps(raw)
        known = _bundles(_wrapped(text), f"{where}: source.rawBundleJson")
    else:
        known = list(bundles)
    wanted = [source.get("bundleId"), source.get("ostcId"), runtime.get("ostcId")]
    names = [str(one) for one in wanted if one]
    meant = [one for one in known if any(one.is_called(name) for name in names)] or (
        known if len(known) == 1 else []
    )
    if not meant:
        raise InputError(
            f"{where}: no bundle is there for {', '.join(names) or 'it'}: a plan brings one as "
            "`source.rawBundleJson`, or the file has it beside the plan",
            code="plan",
        )
    return meant[0], json.loads(meant[0].bundle.orchestration.text)


def _wrapped(text: str) -> str:
    """What a plan embeds may be one bundle without the file around it."""
    with suppress(ValueError, RecursionError):  # what it is then is told by who reads it
        found = json.loads(text)
        if isinstance(found, dict) and "items" in found and "bundles" not in found:
            return json.dumps({"format": "xgr-multi-bundle@1", "bundles": [found]})
    return text


def _check_hash(source: Json, runtime: Json, document: Json, where: str) -> None:
    known = hashes_of(document)
    for part, name in ((source, "source"), (runtime, "runtime")):
        said = str(part.get("ostcHash") or "")
        if HASH.fullmatch(said) and int(said, 16) and said.lower() not in known:
            found = hash_of(canonical_text(document))
            raise InputError(
                f"{where}: {name}.ostcHash is {said}, and the bundle hashes to {found}: it "
                "was changed after the plan was written; export the plan again",
                code="wrong_hash",
            )


def _contracts(plan: Json, where: str) -> dict[str, str]:
    """The addresses that rules were deployed at, by alias."""
    found: dict[str, str] = {}
    bindings = _part(plan, "bindings", where)
    for bundle in _a(list, bindings.get("bundles", []), f"{where}: bindings.bundles"):
        for alias, address in _part(_a(dict, bundle, where), "xrc137ByLogicalRef", where).items():
            if isinstance(address, str) and ADDRESS.fullmatch(address):
                found[alias] = address
    return found


def _setup(plan: Json, where: str) -> dict[str, str]:
    """Contracts that the plan wants beside its own: an address that is given, or one made up."""
    setup = _part(plan, "testSetup", where)
    found: dict[str, str] = {}
    for contract in _a(list, setup.get("contracts", []), f"{where}: testSetup.contracts"):
        each = _a(dict, contract, where)
        key = str(each.get("key") or each.get("id") or "")
        given = [each.get("deployedAddress"), each.get("address")]
        known = [one for one in given if isinstance(one, str) and ADDRESS.fullmatch(one)]
        found[key] = known[0] if known else address_of(key)
    return found


def _deployed(bundle: Bundle, addresses: Mapping[str, str]) -> Bundle:
    """The rules at their addresses, as if they had been deployed."""
    rules = {alias: replace(rule, address=addresses[alias]) for alias, rule in bundle.rules.items()}
    return replace(bundle, rules=rules)


def filled(text: str, addresses: Mapping[str, str], aliases: set[str], where: str) -> str:
    def address(found: re.Match[str]) -> str:
        name = found[1]
        if name in addresses:
            return addresses[name]
        if name in aliases:
            return found[0]  # a step that names its rule this way
        raise InputError(f"{where}: nothing says what ${{addr:{name}}} is", code="plan")

    return _SETUP.sub(address, text)


# -- expectations ----------------------------------------------------------------------------------


def _expectations(given: Json, where: str) -> Expectations:
    timeline = _a(list, given.get("timeline", []), f"{where}: expectations.timeline")
    statuses = given.get("finalStatuses", [])
    statuses = [statuses] if isinstance(statuses, str) else _a(list, statuses, where)
    for status in statuses:
        _one_of(status, STATUSES, f"{where}: finalStatuses")
    return Expectations(
        tuple(_expectation(one, f"{where}: timeline[{n}]") for n, one in enumerate(timeline)),
        tuple(statuses),
        str(given.get("finalStep") or ""),
    )


def _expectation(given: Any, where: str) -> Expectation:
    entry = _a(dict, given, where)
    if "alternatives" not in entry:  # the flat form of scenarios
        return Expectation(str(entry.get("stepId", "")), "allOf", (_alternative(entry, where),))
    mode = _one_of(entry.get("mode", "allOf"), MODES, f"{where}.mode")
    listed = _a(list, entry["alternatives"], f"{where}.alternatives")
    made = tuple(_alternative(one, f"{where}.alternatives[{n}]") for n, one in enumerate(listed))
    if not made:
        raise InputError(f"{where} has no alternatives", code="plan")
    label = str(entry.get("label") or entry.get("id") or made[0].step)
    return Expectation(label, mode, made)


def _alternative(given: Any, where: str) -> Alternative:
    entry = _a(dict, given, where)
    if not entry.get("stepId"):
        raise InputError(f"{where} names no step: add `stepId`", code="plan")
    valid = entry.get("valid")
    if valid not in (None, True, False, ""):
        raise InputError(f"{where}.valid is true, false or null, not {valid!r}", code="plan")
    status = str(entry.get("status") or "")
    if status:
        _one_of(status, STATUSES, f"{where}.status")
    return Alternative(
        step=str(entry["stepId"]),
        occurrence=max(1, _whole(entry.get("occurrence") or 1, f"{where}.occurrence")),
        exist=entry.get("exist", True) is not False,
        valid=valid if isinstance(valid, bool) else None,
        status=status,
        assertions=tuple(_assertions(entry, where)),
    )


def _assertions(entry: Json, where: str) -> Iterator[Assertion]:
    kinds = {"inputAssertions": "input", "apiAssertions": "api", "contractReadAssertions": "read"}
    for key, place in kinds.items():
        for number, each in enumerate(_a(list, entry.get(key, []), f"{where}.{key}")):
            given = _a(dict, each, f"{where}.{key}[{number}]")
            op = _one_of(given.get("op", "eq"), OPERATORS, f"{where}.{key}[{number}].op")
            if op == "regex":
                _check_pattern(given.get("value"), f"{where}.{key}[{number}].value")
            yield Assertion(
                place,
                str(given.get("field", "")),
                op,
                given.get("value"),
                str(given.get("valueType") or ""),
            )


# -- scenarios -------------------------------------------------------------------------------------


def _scenario(given: Any, where: str, bundles: Sequence[NamedBundle]) -> Scenario:
    scenario = _a(dict, given, where)
    plans = {}
    for number, entry in enumerate(_a(list, scenario.get("plans", []), f"{where}: plans")):
        each = _a(dict, entry, f"{where}: plans[{number}]")
        key = str(each.get("key") or number)
        plans[key] = _plan(each.get("plan", each), f"{where}: plans[{number}]", bundles)
    actors = {
        name: str(_a(dict, actor, f"{where}: actors.{name}").get("alias") or name)
        for name, actor in _part(scenario, "actors", where).items()
    }
    listed = _a(list, scenario.get("steps", []), f"{where}: steps")
    steps = tuple(_scenario_step(one, f"{where}: steps[{n}]") for n, one in enumerate(listed))
    return Scenario(str(scenario.get("title") or where), plans, actors, steps)


def _scenario_step(given: Any, where: str) -> ScenarioStep:
    step = _a(dict, given, where)
    kind = step.get("type")
    if kind not in STEPS:
        raise InputError(
            f"{where}: there is no step {kind!r}: {', '.join(STEPS)} are what is known", code="plan"
        )
    expects = Expectations()
    if kind == "assertSession":
        expects = _expectations(_part(step, "expect", where), where)
    return ScenarioStep(str(step.get("id") or where), str(kind), step, expects)


# -- forms -----------------------------------------------------------------------------------------


def _part(given: Json, key: str, where: str) -> Json:
    found: Json = _a(dict, given.get(key) or {}, f"{where}: {key}")
    return found


def _a(kind: type, value: Any, where: str) -> Any:
    if isinstance(value, kind):
        return value
    word = "a mapping" if kind is dict else "a list"
    raise InputError(f"{where} must be {word}", code="plan")


def _whole(value: Any, where: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 40:
        return int(value)
    raise InputError(f"{where} must be a whole number", code="plan")


def _check_pattern(value: Any, where: str) -> None:
    try:
        re.compile(str(value))
    except (re.error, RecursionError, OverflowError) as error:
        raise InputError(f"{where} is no regular expression: {error}", code="plan") from None


def _one_of(value: Any, words: Sequence[str], where: str) -> str:
    if value in words:
        return str(value)
    raise InputError(f"{where} is {value!r}: choose one of {', '.join(words)}", code="plan")
