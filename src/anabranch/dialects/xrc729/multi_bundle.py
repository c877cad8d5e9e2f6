"""The bundle that the vendor's builder writes, `xgr-multi-bundle@1`.

    {"format": "xgr-multi-bundle@1", "createdAt": "…",
     "bundles": [{"bundleId": "…", "items": [
        {"id": "<ostcId>", "meta": {"type": "XRC-729", "alias": "…"}, "structure": {…}},
        {"meta": {"type": "XRC-137", "alias": "X"}, "payload": {…}, "rules": […]}]}]}

Each bundle has one orchestration and the rules that its steps name by alias (`cm:xrc137:X`) or by
address. What the vendor's own examples leave out (ids, dates) is left out without harm and told
as a warning. The text of an orchestration is the one that its deploy tool stores in the registry:
compact JSON without what is said by default, so that its hash is the one that test plans name.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from anabranch.dialects.findings import Findings, Section
from anabranch.dialects.nodes import Fields, Items, Node, Scalar, plain
from anabranch.dialects.xrc137.read import METADATA as RULE_METADATA
from anabranch.dialects.xrc729.bundle import ADDRESS, HASH, Bundle, BundleDocument, hash_of
from anabranch.net.problems import Position

FORMAT = "xgr-multi-bundle@1"
ORCHESTRATION, RULE = "XRC-729", "XRC-137"
#: Lists of test plans and scenarios may stand beside the bundles; `anabranch test` plays them.
TESTS = ("plans", "scenarios")
BESIDE_BUNDLES = ("createdAt", "kind", "version", "exportedAt", "meta", "id", "title", *TESTS)
BESIDE_ITEMS = ("meta", "name", "id", "title")
_BESIDE = (*RULE_METADATA, "ruleHash", "hash")
_RULE_PARTS = ("rules", "contractReads", "apiCalls", "onValid", "onInvalid")


class NamedBundle(msgspec.Struct, frozen=True):
    """One bundle of the file, under the names that it can be chosen by."""

    bundle_id: str
    ostc_id: str
    bundle: Bundle

    def is_called(self, name: str) -> bool:
        return name in (self.bundle_id, self.ostc_id)


def is_multi_bundle(root: Fields) -> bool:
    named = root.get("format")
    if isinstance(named, Scalar) and str(named.value).startswith(FORMAT.partition("@")[0]):
        return True
    return isinstance(root.get("bundles"), Items) and "kind" not in root


def is_rule(root: Fields) -> bool:
    """A rule by itself: it declares inputs, and says what it does with them."""
    if "structure" in root or not isinstance(root.get("payload"), Fields):
        return False
    if any(key in root for key in _RULE_PARTS) or _in_meta(root, "type") == RULE:
        return True
    return set(root.fields) <= {"payload", *RULE_METADATA}


def read_multi_bundle(file: str, root: Fields, findings: Findings) -> list[NamedBundle]:
    section = Section(root, "the bundle", findings)
    section.choice("format", (FORMAT,), FORMAT)
    if "format" not in section:
        _incomplete(findings, root.position, f'the file has no `format`: "{FORMAT}"')
    if "createdAt" not in section:
        _incomplete(findings, root.position, "the file has no `createdAt`")
    listed = section.items("bundles")
    section.finish(BESIDE_BUNDLES, free=())
    if listed is None or not listed.items:
        section.missing("bundles", "add the bundles, each with its items")
        return []
    found = [
        _bundle(node, f"{file}#bundles/{number}", findings)
        for number, node in enumerate(listed.items)
    ]
    return [each for each in found if each is not None]


def _incomplete(findings: Findings, at: Position, message: str) -> None:
    findings.warn(at, "incomplete-bundle", message, "strict importers require it; it runs without")


def _bundle(node: Node, file: str, findings: Findings) -> NamedBundle | None:
    section = findings.section(node, "a bundle")
    if section is None:
        return None
    bundle_id = section.string("bundleId")
    if not bundle_id:
        _incomplete(findings, node.position, "a bundle has no `bundleId`")
    items = section.items("items")
    section.finish(BESIDE_ITEMS, free=())
    parts = list(_parts(items, findings)) if items is not None else []
    orchestrations = [part for part in parts if _kind(part) == ORCHESTRATION]
    if len(orchestrations) != 1:
        message = f"a bundle has one item with a `structure`, not {len(orchestrations)}"
        hint = "put the orchestration and its rules into a bundle of their own"
        findings.add(node.position, "one-orchestration", message, hint)
        return None
    (graph,) = orchestrations
    _check_item(graph, bundle_id, findings)
    rules = _rules([part for part in parts if part is not graph], bundle_id, file, findings)
    text = canonical_text(plain(graph))
    made = BundleDocument(text, f"{file}/orchestration", node=_without(graph, ("ostcHash", "hash")))
    _check_hash(graph, ("ostcHash", "hash"), hash_of(text), findings)
    return NamedBundle(bundle_id, _word(graph.get("id")), Bundle(made, rules))


def _parts(items: Items, findings: Findings) -> Iterator[Fields]:
    for item in items.items:
        if isinstance(item, Fields):
            yield item
        else:
            findings.wrong_type(item, "an item of a bundle", "a mapping")


def _in_meta(item: Fields, key: str) -> str:
    meta = item.get("meta")
    return _word(meta.get(key)) if isinstance(meta, Fields) else ""


def _kind(item: Fields) -> str:
    """What its `meta` says, else what it looks like."""
    said = _in_meta(item, "type").upper().replace("XRC729", ORCHESTRATION).replace("XRC137", RULE)
    if said in (ORCHESTRATION, RULE):
        return said
    return ORCHESTRATION if "structure" in item else RULE


def _word(node: Node | None) -> str:
    return node.value if isinstance(node, Scalar) and isinstance(node.value, str) else ""


def _check_item(item: Fields, bundle_id: str, findings: Findings) -> None:
    if not isinstance(item.get("meta"), Fields):
        _incomplete(findings, item.position, "an item has no `meta` with its type and alias")
    for other in (_word(item.get("bundleId")), _in_meta(item, "bundleId")):
        if bundle_id and other and other != bundle_id:
            message = f"an item says that it belongs to {other!r}, and stands in {bundle_id!r}"
            _incomplete(findings, item.position, message)


def _rules(
    items: list[Fields], bundle_id: str, file: str, findings: Findings
) -> dict[str, BundleDocument]:
    found: dict[str, BundleDocument] = {}
    for number, item in enumerate(items):
        _check_item(item, bundle_id, findings)
        alias = _alias(item) or f"rule-{number + 1}"
        if alias in found:
            message = f"two rules of the bundle are called {alias!r}"
            findings.add(item.position, "duplicate-label", message, "give each an alias of its own")
            continue
        text = json.dumps(
            {key: plain(node) for key, node in item.fields.items() if key not in _BESIDE},
            separators=(",", ":"),
            ensure_ascii=False,
        )
        _check_hash(item, ("ruleHash", "hash"), hash_of(text), findings)
        node = _without(item, ("ruleHash", "hash"))
        found[alias] = BundleDocument(text, f"{file}/rules/{alias}", _address(item), node=node)
    return found


def _without(item: Fields, keys: tuple[str, ...]) -> Fields:
    kept = {key: node for key, node in item.fields.items() if key not in keys}
    return Fields(kept, item.keys, item.position)


def _alias(item: Fields) -> str:
    return _in_meta(item, "alias") or _word(item.get("id")) or _word(item.get("name"))


def _address(item: Fields) -> str:
    for text in (_in_meta(item, "deployedAddress"), _word(item.get("address"))):
        if ADDRESS.fullmatch(text):
            return text
    return ""


def _check_hash(item: Fields, keys: tuple[str, ...], found: str, findings: Findings) -> None:
    """A hash that somebody put beside a document has to be that of the document."""
    for key in keys:
        said = _word(item.get(key))
        if HASH.fullmatch(said) and int(said, 16) and said.lower() != found:
            message = f"`{key}` is {said}, and the text hashes to {found}"
            hint = "the text was changed after its hash was taken: correct one of the two"
            findings.add(item.keys[key], "wrong-hash", message, hint)


# -- what a registry keeps ---------------------------------------------------------------------


def canonical_text(
    document: Mapping[str, Any], *, sort: bool = False, without_any: bool = False
) -> str:
    """The text that the deploy tool stores for an orchestration, of which the hash is taken."""
    structure = document.get("structure")
    steps = structure if isinstance(structure, Mapping) else {}
    made = {
        "id": document.get("id", ""),
        "structure": {name: _step(step, without_any) for name, step in steps.items()},
    }
    return json.dumps(made, separators=(",", ":"), ensure_ascii=False, sort_keys=sort)


def _step(step: Any, without_any: bool) -> Any:
    if not isinstance(step, Mapping):
        return step
    made: dict[str, Any] = {"rule": step["rule"]} if "rule" in step else {}
    for key in ("onValid", "onInvalid"):
        branch = _branch(step.get(key), without_any)
        if branch:
            made[key] = branch
    rest = {key: value for key, value in step.items() if key not in (*made, *_DROPPED)}
    return {**made, **rest}


_DROPPED = ("onValid", "onInvalid", "id")


def _branch(branch: Any, without_any: bool) -> Any:
    if not isinstance(branch, Mapping):
        return branch
    made = {key: value for key, value in branch.items() if key != "join" and value != []}
    join = branch.get("join")
    if isinstance(join, Mapping):
        made["join"] = _join(join, without_any)
    elif join is not None:
        made["join"] = join
    return made


def _join(join: Mapping[str, Any], without_any: bool) -> dict[str, Any]:
    said = {key: value for key, value in join.items() if (key, value) != ("waitonjoin", "drain")}
    if without_any and said.get("mode") == "any":
        del said["mode"]
    if isinstance(said.get("from"), list):
        said["from"] = [_producer(entry) for entry in said["from"]]
    order = ("joinid", "mode", "k", "waitonjoin", "from")
    first = {key: said[key] for key in order if key in said}
    return {**first, **said}


def _producer(entry: Any) -> Any:
    if isinstance(entry, Mapping) and entry.get("when") == "any":
        return {key: value for key, value in entry.items() if key != "when"}
    return entry


def hashes_of(document: Mapping[str, Any]) -> set[str]:
    """Every hash under which a tool in use may know this orchestration: as it is deployed, with
    `mode: any` dropped, and with sorted keys, as a helper in circulation does."""
    return {
        hash_of(canonical_text(document, sort=sort, without_any=without_any))
        for sort in (False, True)
        for without_any in (False, True)
    }
