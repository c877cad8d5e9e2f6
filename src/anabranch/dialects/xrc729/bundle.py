"""A bundle: an orchestration together with the rules its steps name, in one text.

    {
      "bundle": "xrc729",
      "orchestration": <document> | "<its text>" | {"text": "<its text>", "file": "…"},
      "rules": {"<alias or address>": <document> | "<its text>" | {"text", "file", "address", …}},
      "chain": {"registry": "0x…", "ostcId": "…", "ostcHash": "0x…", "block": 7, "chainId": 1643}
    }

A run is stored with its bundle, so it needs nothing outside. Texts are kept to the letter, because
hashes are taken of them; where a text came from a file, problems are told at that file's lines.
`chain` is there when the documents were read from a registry contract.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from anabranch.dialects.findings import Findings, Section
from anabranch.dialects.nodes import Fields, Node, Scalar, plain
from anabranch.dialects.source import Document, read_source
from anabranch.keccak import keccak256
from anabranch.net.problems import Position

KIND = "xrc729"
ADDRESS = re.compile(r"0x[0-9a-fA-F]{40}")
HASH = re.compile(r"0x[0-9a-fA-F]{64}")
_ALIASES = (
    re.compile(r"cm:xrc137:([A-Za-z0-9_.-]+)"),
    re.compile(r"\$\{addr:([A-Za-z0-9_.-]+)\}"),
    re.compile(r"\{\{\s*([A-Za-z0-9_.-]+)\s*\}\}"),
)
BESIDE = ("id", "name", "meta")  # what else may stand in a bundle
CHAIN = ("registry", "ostcId", "ostcHash", "block", "chainId", "pinned")


class BundleDocument(msgspec.Struct, frozen=True):
    """One document of a bundle: what it says, to the letter, and where that can be read."""

    text: str
    file: str = ""
    address: str = ""  # of a rule: the contract it is deployed at, where that is known
    origin: str = "bundle"
    node: Fields | None = None  # when it stands in the bundle as it is
    position: Position | None = None


class Bundle(msgspec.Struct, frozen=True):
    orchestration: BundleDocument
    rules: Mapping[str, BundleDocument] = {}
    chain: Mapping[str, Any] = {}

    def rule(self, name: str) -> BundleDocument | None:
        """The rule that a step means, by alias or by address."""
        alias = alias_of(name)
        if alias in self.rules:
            return self.rules[alias]
        if not ADDRESS.fullmatch(alias):
            return None
        wanted = alias.lower()
        for key, text in self.rules.items():
            if wanted in (key.lower(), text.address.lower()):
                return text
        return None


def alias_of(name: str) -> str:
    """`cm:xrc137:X`, `${addr:X}` and `{{X}}` are ways to write X; anything else is its own name."""
    for form in _ALIASES:
        found = form.fullmatch(name.strip())
        if found is not None:
            return found.group(1)
    return name.strip()


# -- writing ---------------------------------------------------------------------------------


def bundle_text(bundle: Bundle) -> str:
    """The text under which a run keeps its bundle; the same bundle gives the same text."""
    whole: dict[str, Any] = {
        "bundle": KIND,
        "orchestration": _entry(bundle.orchestration),
        "rules": {name: _entry(text) for name, text in sorted(bundle.rules.items())},
    }
    if bundle.chain:
        whole["chain"] = dict(bundle.chain)
    return json.dumps(whole, indent=1, ensure_ascii=False)


def _entry(text: BundleDocument) -> dict[str, str]:
    said = {"text": text.text, "file": text.file, "address": text.address}
    if text.origin != "bundle":
        said["origin"] = text.origin
    return {key: value for key, value in said.items() if value}


# -- reading ---------------------------------------------------------------------------------


def read_bundle(document: Document, root: Fields, findings: Findings) -> Bundle | None:
    """The parts of a bundle; None when there is no orchestration in it."""
    section = Section(root, "the bundle", findings)
    section.choice("bundle", (KIND,), KIND)
    node = section.needed("orchestration", "add the orchestration, or its text")
    orchestration = None
    if node is not None:
        orchestration = _text(node, "the orchestration", f"{document.file}#orchestration", findings)
    rules = _rules(section, document.file, findings)
    chain = _chain(section)
    section.finish(BESIDE, free=())
    return None if orchestration is None else Bundle(orchestration, rules, chain)


def _rules(section: Section, file: str, findings: Findings) -> dict[str, BundleDocument]:
    rules = section.section("rules")
    found: dict[str, BundleDocument] = {}
    for name, node in rules.node.fields.items() if rules is not None else ():
        text = _text(node, f"the rule {name!r}", f"{file}#rules/{name}", findings)
        if text is not None:
            found[alias_of(name)] = text
    return found


def _text(node: Node, what: str, file: str, findings: Findings) -> BundleDocument | None:
    match node:
        case Scalar(value=str(text)):
            return BundleDocument(text, file, address_in(text), position=node.position)
        case Fields() if isinstance(node.get("text"), Scalar):
            return _wrapped(Section(node, what, findings), file)
        case Fields():
            text = json.dumps(plain(node), separators=(",", ":"), ensure_ascii=False)
            return BundleDocument(text, file, address_in(text), node=node, position=node.position)
    findings.wrong_type(node, what, "a document or its text")
    return None


def _wrapped(section: Section, file: str) -> BundleDocument:
    text = BundleDocument(
        text=section.string("text"),
        file=section.string("file") or file,
        address=section.string("address"),
        origin=section.string("origin") or "bundle",
        position=section.position,
    )
    said = section.string("hash")
    if HASH.fullmatch(said) and int(said, 16) and said.lower() != (found := hash_of(text.text)):
        message = f"`hash` of {section.what} is {said}, and the text hashes to {found}"
        hint = "the text was changed after its hash was taken: correct one of the two"
        section.report("hash", "wrong-hash", message, hint)
    section.finish()
    return text


def hash_of(text: str) -> str:
    """The hash under which a contract knows this text."""
    return "0x" + keccak256(text.encode("utf-8", "surrogatepass")).hex()


def address_in(text: str) -> str:
    """Deploy tools keep the address of a rule beside it; "" where there is none."""
    if '"address"' not in text:
        return ""
    try:
        rule = json.loads(text)
    except ValueError:
        return ""
    found = rule.get("address") if isinstance(rule, dict) else None
    return found if isinstance(found, str) and ADDRESS.fullmatch(found) else ""


def _chain(section: Section) -> dict[str, Any]:
    chain = section.section("chain")
    if chain is None:
        return {}
    known = {key: plain(node) for key in CHAIN if (node := chain.ask(key)) is not None}
    chain.finish()
    return known


def document_of(text: BundleDocument, findings: Findings) -> tuple[Fields | None, str]:
    """The orchestration's root with its positions, read from its own text where it has one."""
    if text.node is not None:
        return text.node, text.file
    document = read_source(text.text, file=text.file)
    findings.problems.extend(document.problems)
    if isinstance(document.root, Fields):
        return document.root, document.file
    if document.root is not None:
        findings.wrong_type(document.root, "the orchestration", "a mapping")
    return None, document.file
