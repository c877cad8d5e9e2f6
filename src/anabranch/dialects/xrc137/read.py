"""From the text of a rule to a rule document, with every problem at its place.

`read_rule` takes a text as a contract or a file holds it, `rule_from` a mapping that was read as a
part of something larger (a bundle). A document with an error is none; warnings come beside it.
"""

from __future__ import annotations

from anabranch.dialects.findings import Findings, Section
from anabranch.dialects.json_reader import read_json
from anabranch.dialects.nodes import Fields, Node, Scalar, plain
from anabranch.dialects.reading import Reading, SourceLimits
from anabranch.dialects.xrc137 import limits
from anabranch.dialects.xrc137.calls import CallReader
from anabranch.dialects.xrc137.casts import is_address
from anabranch.dialects.xrc137.document import (
    Execution,
    GrantDeclaration,
    Input,
    RuleBranch,
    RuleDocument,
    RuleExpression,
    RuleKind,
    Wait,
    WakeUp,
)
from anabranch.dialects.xrc137.parts import ROOT, PartsReader, long_texts, mapping_of
from anabranch.expressions.placeholders import Value, constant
from anabranch.net.problems import Position, Problem, in_order

ENCRYPTED = "XGR1."
#: What deploy tools and bundles write around a rule; it says nothing about how the rule works.
METADATA = ("id", "bundleId", "meta", "name", "address", "contractId")
KEYS = ("payload", "contractReads", "apiCalls", "rules", "onValid", "onInvalid")
RIGHTS_MAX = 1 | 2 | 4  # of a grant: READ, WRITE and MANAGE, added up
RULE_KINDS: tuple[RuleKind, ...] = ("validate", "abortStep", "cancelSession")

Read = tuple[RuleDocument | None, tuple[Problem, ...]]


def read_rule(text: str | bytes, *, file: str = "<rule>") -> Read:
    """The document, or None with the errors that keep it from being one."""
    reading = Reading(file, SourceLimits(bytes_max=limits.DOCUMENT_BYTES, depth_max=32))
    decoded = _decoded(text, reading)
    root = None if decoded is None else read_json(decoded, reading)
    if root is None:
        return None, in_order(reading.problems)
    if not isinstance(root, Fields):
        findings = Findings()
        findings.wrong_type(root, "a rule document", "a mapping")
        return None, in_order([*reading.problems, *findings.problems])
    document, problems = rule_from(root)
    if reading.problems:
        document = None
    return document, in_order([*reading.problems, *problems])


def rule_from(node: Fields) -> Read:
    """The same for a mapping that stands inside another document."""
    findings = Findings()
    document = _Reader(node, findings).document()
    long_texts(node, findings)
    wrong = any(problem.severity == "error" for problem in findings.problems)
    return None if wrong else document, in_order(findings.problems)


def _decoded(text: str | bytes, reading: Reading) -> str | None:
    size = len(text if isinstance(text, bytes) else text.encode("utf-8", "replace"))
    if size > limits.DOCUMENT_BYTES:
        message = f"the rule is {size:,} bytes long; the limit is {limits.DOCUMENT_BYTES:,}"
        reading.problem(1, 1, "too-large", message, "split it over several steps")
        return None
    if isinstance(text, bytes):
        try:
            text = text.decode()
        except UnicodeDecodeError:
            reading.problem(1, 1, "not-utf8", "this is not UTF-8", "save the rule as UTF-8")
            return None
    if text.startswith(ENCRYPTED):
        message = "the rule is encrypted"
        reading.problem(1, 1, "encrypted-rule", message, "give the engine a decryptor for it")
        return None
    return text


class _Reader:
    def __init__(self, node: Fields, findings: Findings) -> None:
        self._root = Section(node, ROOT, findings)
        self._findings = findings
        self._parts = PartsReader(findings)

    def document(self) -> RuleDocument:
        root, parts = self._root, self._parts
        inputs = self._inputs()
        parts.known |= {each.name for each in inputs}
        calls = CallReader(parts)
        reads = parts.items(root, "contractReads", limits.READS, calls.read)
        called = parts.items(root, "apiCalls", limits.CALLS, calls.call)
        rules = parts.items(root, "rules", limits.RULES, self._rule)
        branches = _BranchReader(parts, calls)
        on_valid, on_invalid = parts.section(root, "onValid"), parts.section(root, "onInvalid")
        document = RuleDocument(
            inputs,
            reads,
            called,
            rules,
            branches.branch(on_valid) if on_valid else RuleBranch(),
            branches.branch(on_invalid) if on_invalid else RuleBranch(),
        )
        self._finish()
        return document

    def _finish(self) -> None:
        visible = {key: node for key, node in self._root.node.fields.items() if key not in METADATA}
        keys = {key: self._root.key_position(key) for key in visible}
        rest = Section(Fields(visible, keys, self._root.position), "a rule", self._findings)
        rest.finish(also=KEYS, free=())

    def _inputs(self) -> tuple[Input, ...]:
        section = self._parts.section(self._root, "payload")
        if section is None:
            self._root.require("payload", "declare the inputs; {} when there are none")
            return ()
        self._parts.limit(section.position, "`payload`", len(section.node.fields), limits.INPUTS)
        found = [
            self._input(name, node, section.key_position(name))
            for name, node in section.node.fields.items()
        ]
        return tuple(each for each in found if each is not None)

    def _input(self, name: str, node: Node, at: Position) -> Input | None:
        section = self._findings.section(node, f"payload.{name[:64]}")
        if section is None or not self._parts.name(name, at, "an input"):
            return None
        type_name = self._parts.type_of(section)
        default = self._parts.default(section, type_name)
        section.finish()
        return Input(name, type_name, default) if type_name else None

    def _rule(self, node: Node, what: str) -> RuleExpression | None:
        if isinstance(node, Scalar):
            cel = self._parts.expression(node, what)
            return None if cel is None else RuleExpression(cel)
        section = self._findings.section(node, what)
        if section is None:
            return None
        text = section.needed("expression", "write the condition")
        kind = section.choice("type", RULE_KINDS, "validate")
        section.finish()
        cel = None if text is None else self._parts.expression(text, what)
        return None if cel is None else RuleExpression(cel, kind)


class _BranchReader:
    """`onValid` and `onInvalid`."""

    def __init__(self, parts: PartsReader, calls: CallReader) -> None:
        self._parts = parts
        self._calls = calls
        self._findings = parts.findings

    def branch(self, section: Section) -> RuleBranch:
        payload = self._payload(section, limits.OUTCOME_KEYS)
        execution = self._execution(section)
        wait = self._wait(section)
        wake_ups = self._parts.items(section, "wakeUps", limits.WAKE_UPS, self._wake_up)
        grants = self._parts.items(section, "grants", limits.GRANTS, self._grant)
        given = "encryptLogs" in section
        encrypt = section.flag("encryptLogs")
        days = section.whole("logExpireDays", 365, least=1, most=limits.EXPIRE_DAYS)
        section.finish()
        return RuleBranch(
            payload, execution, wait, wake_ups, grants, encrypt if given else None, days
        )

    def _payload(self, section: Section, most: int) -> dict[str, Value]:
        found = self._parts.section(section, "payload", most)
        if found is None:
            return {}
        return {
            key: self._parts.value(node, f"{found.what}.{key}")
            for key, node in found.node.fields.items()
            if self._parts.name(key, found.key_position(key), "an output")
        }

    # -- execution ---------------------------------------------------------------------------

    def _execution(self, section: Section) -> Execution | None:
        found = self._parts.section(section, "execution")
        if found is None:
            return None
        to = found.ask("to")
        function = self._calls.function(found, required=False)
        args = self._parts.items(found, "args", limits.EXECUTION_ARGS, self._parts.typed_value)
        value = found.ask("value")
        sent = None if value is None else self._parts.typed_value(value, f"`value` of {found.what}")
        gas_limit = self._gas_limit(found)
        extras = mapping_of(found.ask("extras"))
        found.finish()
        if to is None or (isinstance(to, Scalar) and to.value == ""):
            return None  # no call is made: the branch only speaks
        target = self._parts.value(to, f"`to` of {found.what}")
        self._check_fixed(target, to, found)
        return Execution(target, function, args, sent, gas_limit, extras)

    def _check_fixed(self, target: Value, node: Node, section: Section) -> None:
        """An address that depends on nothing can be checked now."""
        if not target.names and target.sort in ("literal", "text"):
            if is_address(target.evaluate({})) or self._parts.filled_in_later(node, section):
                return
            message = f"`to` of {section.what} is no address"
            hint = "write 0x and 40 hexadecimal digits, or a placeholder such as [Token]"
            self._findings.add(node.position, "bad-value", message, hint)

    def _gas_limit(self, section: Section) -> int | None:
        gas = self._parts.section(section, "gas")
        if gas is None:
            return None
        limit = gas.whole("limit", 0, least=0, most=2**63 - 1)
        gas.finish()
        return limit or None

    # -- the rest ----------------------------------------------------------------------------

    def _wait(self, section: Section) -> Wait | None:
        seconds, milliseconds = section.ask("waitSec"), section.ask("waitMs")
        until = section.ask("waitUntilMs")
        for key, node in (("waitMs", milliseconds), ("waitUntilMs", until)):
            if node is not None:
                self._parts.old(section.key_position(key), f"`{key}`", "write `waitSec`")
        if seconds is not None and milliseconds is not None:
            section.conflict("waitSec", "waitMs", "keep `waitSec`")
        if until is not None:
            return Wait("until", self._number(until, section, "waitUntilMs", 2**63 - 1))
        if seconds is not None:
            most = limits.WAIT_SECONDS
            return Wait("seconds", self._number(seconds, section, "waitSec", most))
        if milliseconds is not None:
            most = limits.WAIT_SECONDS * 1000
            return Wait("milliseconds", self._number(milliseconds, section, "waitMs", most))
        return None

    def _number(self, node: Node, section: Section, key: str, most: int) -> Value:
        what = f"`{key}` of {section.what}"
        value = plain(node)
        if not isinstance(node, Scalar) or isinstance(value, bool | float):
            self._findings.wrong_type(node, what, "a whole number or an expression")
        elif isinstance(value, int) and not 0 <= value <= most:
            message = f"{what} is {value}"
            self._findings.add(node.position, "bad-number", message, f"write 0 to {most}")
        return self._parts.value(node, what)

    def _wake_up(self, node: Node, what: str) -> WakeUp | None:
        section = self._findings.section(node, what)
        if section is None:
            return None
        given: dict[str, Value] = {}
        hints = {
            "runner": "give the address of the session's owner",
            "sessionId": "name the session",
            "stepId": "name the step that sleeps",
        }
        for key, hint in hints.items():
            found = section.needed(key, hint)
            if found is not None:
                given[key] = self._parts.value(found, f"`{key}` of {what}")
        payload = self._payload(section, limits.OUTCOME_KEYS)
        section.finish()
        if len(given) < len(hints):
            return None
        return WakeUp(given["runner"], given["sessionId"], given["stepId"], payload)

    def _grant(self, node: Node, what: str) -> GrantDeclaration | None:
        section = self._findings.section(node, what)
        if section is None:
            return None
        address = section.needed("address", "say who may read")
        rights = section.whole("rights", 0, least=1, most=RIGHTS_MAX)
        section.require("rights", "add up READ 1, WRITE 2, MANAGE 4")
        days = self._days(section)
        section.finish()
        if address is None:
            return None
        value = self._parts.value(address, f"`address` of {what}")
        return GrantDeclaration(value, rights, days)

    def _days(self, section: Section) -> Value | None:
        """A number of days, or a text that gives one: `"[Days]"`."""
        node = section.ask("expireDays")
        if node is None:
            return None
        if isinstance(node, Scalar) and isinstance(node.value, str):
            return self._parts.value(node, f"`expireDays` of {section.what}")
        return constant(section.whole("expireDays", 1, least=1, most=limits.EXPIRE_DAYS))
