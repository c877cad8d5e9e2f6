"""From the text of a rule to a rule document, with every problem at its place.

`read_rule` takes a text as a contract or a file holds it, `rule_from` a mapping that was read as a
part of something larger (a bundle). A document with an error is none; warnings come beside it.
"""

from __future__ import annotations

from anabranch.dialects.findings import Findings, Section
from anabranch.dialects.json_reader import read_json
from anabranch.dialects.nodes import Fields, Node, Scalar
from anabranch.dialects.reading import Reading, SourceLimits
from anabranch.dialects.xrc137 import limits
from anabranch.dialects.xrc137.branches import BranchReader
from anabranch.dialects.xrc137.calls import CallReader
from anabranch.dialects.xrc137.document import Input, Rule, RuleBranch, RuleDocument, RuleKind
from anabranch.dialects.xrc137.parts import ROOT, Parts, long_texts
from anabranch.net.problems import Position, Problem

ENCRYPTED = "XGR1."
#: What deploy tools and bundles write around a rule; it says nothing about how the rule works.
METADATA = ("id", "bundleId", "meta", "name", "address", "contractId")
RULE_KINDS: tuple[RuleKind, ...] = ("validate", "abortStep", "cancelSession")

Read = tuple[RuleDocument | None, tuple[Problem, ...]]


def read_rule(text: str | bytes, *, file: str = "<rule>") -> Read:
    """The document, or None with the errors that keep it from being one."""
    reading = Reading(file, SourceLimits(bytes_max=limits.DOCUMENT_BYTES, depth_max=32))
    decoded = _decoded(text, reading)
    root = None if decoded is None else read_json(decoded, reading)
    if root is None:
        return None, _sorted(reading.problems)
    if not isinstance(root, Fields):
        findings = Findings()
        findings.wrong_type(root, "a rule document", "a mapping")
        return None, _sorted([*reading.problems, *findings.problems])
    document, problems = rule_from(root, file)
    if reading.problems:
        document = None
    return document, _sorted([*reading.problems, *problems])


def rule_from(node: Fields, file: str = "<rule>") -> Read:  # noqa: ARG001 - nodes know their file
    """The same for a mapping that stands inside another document."""
    findings = Findings()
    document = _Reader(node, findings).document()
    long_texts(node, findings)
    wrong = any(problem.severity == "error" for problem in findings.problems)
    return None if wrong else document, _sorted(findings.problems)


def _sorted(problems: list[Problem]) -> tuple[Problem, ...]:
    return tuple(sorted(dict.fromkeys(problems), key=lambda problem: problem.position))


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
        self._parts = Parts(findings)

    def document(self) -> RuleDocument:
        root, parts = self._root, self._parts
        inputs = self._inputs()
        parts.known |= {each.name for each in inputs}
        calls = CallReader(parts)
        reads = parts.items(root, "contractReads", limits.READS, calls.read)
        called = parts.items(root, "apiCalls", limits.CALLS, calls.call)
        rules = parts.items(root, "rules", limits.RULES, self._rule)
        branches = BranchReader(parts, calls)
        on_valid, on_invalid = (
            self._parts.section(root, "onValid"),
            self._parts.section(root, "onInvalid"),
        )
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
        known = ("payload", "contractReads", "apiCalls", "rules", "onValid", "onInvalid")
        visible = {key: node for key, node in self._root.node.fields.items() if key not in METADATA}
        keys = {key: self._root.key_position(key) for key in visible}
        rest = Section(Fields(visible, keys, self._root.position), "a rule", self._findings)
        rest.finish(also=known, free=())

    def _inputs(self) -> tuple[Input, ...]:
        section = self._parts.section(self._root, "payload")
        if section is None:
            if "payload" not in self._root:
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

    def _rule(self, node: Node, what: str) -> Rule | None:
        if isinstance(node, Scalar):
            cel = self._parts.expression(node, what)
            return None if cel is None else Rule(cel)
        section = self._findings.section(node, what)
        if section is None:
            return None
        text = section.ask("expression")
        if text is None:
            section.require("expression", "write the condition")
        kind = section.choice("type", RULE_KINDS, "validate")
        section.finish()
        cel = None if text is None else self._parts.expression(text, what)
        return None if cel is None else Rule(cel, kind)
