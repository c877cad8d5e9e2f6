"""Compiles an orchestration, or a bundle of one with its rules, to a net."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import PurePath

from anabranch.dialects.findings import Findings
from anabranch.dialects.nodes import Fields
from anabranch.dialects.source import Document
from anabranch.dialects.xrc137.document import RuleDocument
from anabranch.dialects.xrc137.limits import DOCUMENT_BYTES
from anabranch.dialects.xrc137.read import ENCRYPTED, read_rule, rule_from
from anabranch.dialects.xrc729.bundle import (
    ADDRESS,
    HASH,
    Bundle,
    BundleDocument,
    address_in,
    alias_of,
    document_of,
    hash_of,
    read_bundle,
)
from anabranch.dialects.xrc729.document import Orchestration, StepDeclaration
from anabranch.dialects.xrc729.lower import lower
from anabranch.dialects.xrc729.multi_bundle import is_multi_bundle, is_rule, read_multi_bundle
from anabranch.dialects.xrc729.read import BYTES_MAX, OrchestrationReader, check_is_json
from anabranch.dialects.xrc729.words import DIALECT
from anabranch.net.analyse import analyse
from anabranch.net.fingerprint import fingerprint
from anabranch.net.net import Net
from anabranch.net.problems import Position, Problem, closest

_Documents = Mapping[str, RuleDocument | None]  # by step; None where it is not known
ALONE = "RULE"  # the step of a rule that is run by itself


def compile_orchestration(document: Document, root: Fields) -> tuple[Net | None, Sequence[Problem]]:
    findings = Findings()
    check_is_json(document.text, root.position, findings)
    if is_multi_bundle(root):
        return _several(document, root, findings)
    bundle: Bundle | None
    if "structure" in root:
        text = BundleDocument(document.text, document.file, node=root, position=root.position)
        bundle = Bundle(text)
    elif is_rule(root):
        bundle = _rule_alone(document, root)
    else:
        bundle = read_bundle(document, root, findings)
    net = None if bundle is None else _compiled(document, bundle, findings)
    return net, findings.problems


def _several(
    document: Document, root: Fields, findings: Findings
) -> tuple[Net | None, Sequence[Problem]]:
    """Every bundle is looked at. One that is alone can run; of several, one has to be chosen."""
    found = read_multi_bundle(document.file, root, findings)
    nets = [_compiled(document, each.bundle, findings) for each in found]
    if len(found) == 1:
        return nets[0], findings.problems
    for net in nets:
        findings.problems.extend(analyse(net) if net is not None else ())
    if found:
        names = ", ".join(repr(each.ostc_id or each.bundle_id) for each in found)
        message = f"the file has {len(found)} orchestrations: {names}"
        hint = "name the one that is meant where it is run or drawn: --ostc ID"
        findings.add(root.position, "several-orchestrations", message, hint, "note")
    return None, findings.problems


def _rule_alone(document: Document, root: Fields) -> Bundle:
    """A rule by itself is the only step of an orchestration that is called after its file."""
    name = PurePath(document.file).stem.strip("<>") or ALONE
    text = json.dumps({"id": name, "structure": {ALONE: {"rule": ALONE}}}, separators=(",", ":"))
    rule = BundleDocument(document.text, document.file, address_in(document.text), node=root)
    return Bundle(BundleDocument(text, f"{document.file}#orchestration"), {ALONE: rule})


def _compiled(document: Document, bundle: Bundle, findings: Findings) -> Net | None:
    orchestration = _read(bundle, findings)
    if orchestration is None or not orchestration.steps:
        return None
    _check_chain(bundle, orchestration, findings)
    entry = _entry(orchestration, findings)
    _check_references(orchestration, bundle, findings)
    documents = _check_rules(orchestration, bundle, entry, findings)
    return lower(
        orchestration,
        bundle,
        entry=entry,
        fingerprint=fingerprint(DIALECT, document.text),
        labels=_labels(orchestration, bundle),
        writes={name: one.outputs for name, one in documents.items() if one is not None},
    )


def _read(bundle: Bundle, findings: Findings) -> Orchestration | None:
    text = bundle.orchestration
    size = len(text.text.encode("utf-8", "surrogatepass"))
    if size > BYTES_MAX:
        at = text.position or Position(1, 1, text.file)
        message = f"the orchestration is {size:,} bytes long; at most {BYTES_MAX:,} are allowed"
        findings.add(at, "too-large", message, "split it")
    node, file = document_of(text, findings)
    if node is None:
        return None
    fallback = PurePath(file.partition("#")[0]).stem.strip("<>") or "orchestration"
    return OrchestrationReader(findings).read(node, fallback)


def _check_chain(bundle: Bundle, orchestration: Orchestration, findings: Findings) -> None:
    """What was read from a registry is still what it says it is."""
    ostc, pinned = bundle.chain.get("ostcId"), bundle.chain.get("ostcHash")
    if ostc is not None and ostc != orchestration.id:
        message = f"the registry keeps this under {ostc!r}, and its own id is {orchestration.id!r}"
        findings.warn(orchestration.position, "other-id", message, "deploy it under its own id")
    if isinstance(pinned, str) and HASH.fullmatch(pinned) and int(pinned, 16):
        found = hash_of(bundle.orchestration.text)
        if found != pinned.lower():
            message = f"the text of the orchestration hashes to {found}, not to {pinned}"
            hint = "load it again from the registry, or correct `ostcHash`"
            findings.add(orchestration.position, "wrong-hash", message, hint)


def _labels(orchestration: Orchestration, bundle: Bundle) -> dict[str, str]:
    """What receipts and lists say about where a session's orchestration came from."""
    labels = {
        "ostcId": str(bundle.chain.get("ostcId") or orchestration.id),
        "ostcHash": hash_of(bundle.orchestration.text),
    }
    registry = bundle.chain.get("registry")
    return {**labels, "registry": str(registry)} if registry else labels


def _entry(orchestration: Orchestration, findings: Findings) -> str:
    """The starter names the start step; where nobody does, the one that nothing leads to."""
    led_to = {
        target
        for step in orchestration.steps.values()
        for branch in step.branches
        for target in (
            *(spawn.step for spawn in branch.spawns),
            *((branch.join.target,) if branch.join is not None else ()),
        )
        if target != step.name
    }
    starts = [name for name in orchestration.steps if name not in led_to]
    if len(starts) == 1:
        return starts[0]
    first = starts[0] if starts else next(iter(orchestration.steps))
    which = f"nothing leads to {', '.join(starts)}" if starts else "every step is led to"
    message = f"no start step stands out ({which}); {first!r} is taken"
    hint = "name the start step when you start it: --start STEP"
    findings.add(orchestration.position, "several-starts", message, hint, "note")
    return first


def _check_references(orchestration: Orchestration, bundle: Bundle, findings: Findings) -> None:
    used: set[int] = set()
    for step in orchestration.steps.values():
        text = bundle.rule(step.rule)
        if text is not None:
            used.add(id(text))
        elif step.rule.strip():
            _unresolved(step, bundle, findings)
    for name, text in bundle.rules.items():
        if id(text) not in used:
            at = text.node.position if text.node is not None else Position(1, 1, text.file)
            named = {alias_of(step.rule) for step in orchestration.steps.values()}
            hint = closest(name, named) or "remove it"
            findings.add(at, "unused-rule", f"no step names the rule {name!r}", hint, "note")


def _unresolved(step: StepDeclaration, bundle: Bundle, findings: Findings) -> None:
    """A rule may still come from a chain; an alias, from nowhere but a bundle or a folder."""
    alias = alias_of(step.rule)
    if ADDRESS.fullmatch(alias):
        return
    message = f"the rule {alias!r} of step {step.name!r} is neither an address nor known here"
    hint = closest(alias, bundle.rules) or "give the rules with --rules, or its address"
    findings.warn(step.rule_position, "unresolved-rule", message, hint)


def _check_rules(
    orchestration: Orchestration, bundle: Bundle, entry: str, findings: Findings
) -> _Documents:
    """Each rule of the bundle as a document, and all of them against the graph."""
    read: dict[int, RuleDocument | None] = {}
    documents: dict[str, RuleDocument | None] = {}
    for step in orchestration.steps.values():
        text = bundle.rule(step.rule)
        if text is not None and id(text) not in read:  # several steps may share a rule
            read[id(text)] = _document(text, findings)
        documents[step.name] = None if text is None else read[id(text)]
    _gaps(orchestration, documents, entry, findings)
    return documents


def _document(text: BundleDocument, findings: Findings) -> RuleDocument | None:
    if text.node is not None:
        document, problems = rule_from(text.node)
        size = len(text.text.encode("utf-8", "surrogatepass"))
        if size > DOCUMENT_BYTES:
            message = f"the rule is {size:,} bytes long; the limit is {DOCUMENT_BYTES:,}"
            hint = "split it over several steps"
            findings.add(text.node.position, "too-large", message, hint)
            document = None
    elif text.text.startswith(ENCRYPTED):  # whoever evaluates it may be able to open it
        message = "the rule is encrypted and cannot be checked; without its key its step aborts"
        at = text.position or Position(1, 1, text.file)
        findings.warn(at, "closed-rule", message, "put its key into the file of rule_keys_file")
        return None
    else:
        document, problems = read_rule(text.text, file=text.file)
    findings.problems.extend(problems)
    return document


def _gaps(
    orchestration: Orchestration, documents: _Documents, entry: str, findings: Findings
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
