"""The rules of a bundle: each checked as a document, and all of them against the graph."""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.dialects.findings import Findings
from anabranch.dialects.xrc137.document import RuleDocument
from anabranch.dialects.xrc137.limits import DOCUMENT_BYTES
from anabranch.dialects.xrc137.read import ENCRYPTED, read_rule, rule_from
from anabranch.dialects.xrc729.bundle import Bundle, Text
from anabranch.dialects.xrc729.document import Orchestration
from anabranch.net.problems import Position

Documents = Mapping[str, RuleDocument | None]  # by step; None where it is not known


def check_rules(
    orchestration: Orchestration, bundle: Bundle, entry: str, findings: Findings
) -> Documents:
    read: dict[int, RuleDocument | None] = {}
    documents: dict[str, RuleDocument | None] = {}
    for step in orchestration.steps.values():
        text = bundle.rule(step.rule)
        if text is not None and id(text) not in read:  # several steps may share a rule
            read[id(text)] = _document(text, findings)
        documents[step.name] = None if text is None else read[id(text)]
    _gaps(orchestration, documents, entry, findings)
    return documents


def _document(text: Text, findings: Findings) -> RuleDocument | None:
    if text.node is not None:
        document, problems = rule_from(text.node, text.file)
        size = len(text.text.encode("utf-8", "surrogatepass"))
        if size > DOCUMENT_BYTES:
            message = f"the rule is {size:,} bytes long; the limit is {DOCUMENT_BYTES:,}"
            hint = "split it over several steps"
            findings.add(text.node.position, "too-large", message, hint)
            document = None
    elif text.text.startswith(ENCRYPTED):  # whoever evaluates it may be able to open it
        message = "the rule is encrypted and cannot be looked at; without its key its step aborts"
        at = text.position or Position(1, 1, text.file)
        findings.warn(at, "closed-rule", message, "put its key into the file of rule_keys_file")
        return None
    else:
        document, problems = read_rule(text.text, file=text.file)
    findings.problems.extend(problems)
    return document


def _gaps(
    orchestration: Orchestration, documents: Documents, entry: str, findings: Findings
) -> None:
    """Inputs that a rule needs and that no step on any way to it declares or hands on.

    The start may bring keys that no rule declares, so this is worth a look and no more. Where the
    rule of a step on the way is not known, nothing can be said.
    """
    before = _before(orchestration)
    for name, document in documents.items():
        ways = before[name]
        if document is None or name == entry or entry not in ways:
            continue
        known = [documents[other] for other in ways]
        if any(other is None for other in known):
            continue
        given = {key for other in known if other is not None for key in _gives(other)}
        for each in document.inputs:
            if each.required and each.name not in given and not each.name.startswith("__"):
                step = orchestration.steps[name]
                message = f"the rule of step {name!r} needs {each.name!r}, which no step before has"
                hint = f"write {each.name!r} in the payload of a branch before it, or a default"
                findings.warn(step.rule_position, "payload-gap", message, hint)


def _gives(document: RuleDocument) -> set[str]:
    return {each.name for each in document.inputs} | set(document.outputs)


def _before(orchestration: Orchestration) -> dict[str, set[str]]:
    """For each step the steps whose payload can come to it; to a join's target, its producers'."""
    leads: dict[str, set[str]] = {name: set() for name in orchestration.steps}
    for step in orchestration.steps.values():
        for branch in step.branches:
            for spawn in branch.spawns:
                if spawn.step in leads:  # a misspelt one is told elsewhere
                    leads[spawn.step].add(step.name)
            if branch.join is not None and branch.join.target in leads:
                producers = {producer.node for producer in branch.join.producers}
                leads[branch.join.target] |= producers & leads.keys()
    return {name: _all_before(name, leads) for name in leads}


def _all_before(name: str, leads: Mapping[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    frontier = list(leads[name])
    while frontier:
        one = frontier.pop()
        if one not in seen:
            seen.add(one)
            frontier.extend(leads[one])
    return seen
