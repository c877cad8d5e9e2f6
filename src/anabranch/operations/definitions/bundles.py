"""An orchestration and its rules, from wherever people keep them, made into one bundle.

Rules come as a folder with one `<alias or address>.json` each, as a bundle, or as a mapping. The
text of the bundle is what a run is stored with, so it needs none of these files again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anabranch import files
from anabranch.dialects.findings import Findings
from anabranch.dialects.nodes import Fields, Scalar
from anabranch.dialects.source import Document, SourceLimits, read_source
from anabranch.dialects.xrc729.bundle import (
    Bundle,
    BundleDocument,
    address_in,
    alias_of,
    bundle_text,
    document_of,
    read_bundle,
)
from anabranch.dialects.xrc729.multi_bundle import (
    NamedBundle,
    is_multi_bundle,
    read_multi_bundle,
)
from anabranch.errors import DefinitionError, InputError
from anabranch.net.problems import Problem

SUFFIX = ".json"

Rules = str | os.PathLike[str] | Mapping[str, Any]  # a folder, a bundle, or the rules themselves


def with_rules(text: str, origin: str, rules: Rules) -> str:
    """The text of the bundle; rules given here go before those the definition brings along."""
    document = read_source(text, file=origin)
    root = document.root
    if isinstance(root, Fields) and is_multi_bundle(root):
        bundle = _only(document, root, "").bundle
    elif not isinstance(root, Fields) or not ("structure" in root or "orchestration" in root):
        raise InputError(
            f"{origin} is not an orchestration: only those take rules", code="not_orchestration"
        )
    elif "structure" in root:
        bundle = Bundle(BundleDocument(text, origin))
    else:
        bundle = _bundle(document, root)
    given = read_rules(rules)
    if not isinstance(rules, Mapping):  # a folder may serve many orchestrations
        given = _named(bundle.orchestration, given)
    return bundle_text(Bundle(bundle.orchestration, {**bundle.rules, **given}, bundle.chain))


def chosen(text: str, origin: str, ostc: str) -> str:
    """The bundle of one orchestration among several in a file, by its id or that of its bundle."""
    document = read_source(text, file=origin)
    root = document.root
    if not isinstance(root, Fields) or not is_multi_bundle(root):
        raise InputError(f"{origin} holds one orchestration: leave --ostc out", code="not_several")
    return bundle_text(_only(document, root, ostc).bundle)


def multi_bundles(document: Document, root: Fields) -> list[NamedBundle]:
    """The bundles of a file; `DefinitionError` when it cannot be read."""
    findings = Findings()
    found = read_multi_bundle(document.file, root, findings)
    if wrong := _errors(document, findings):
        raise DefinitionError(wrong)
    return found


def _only(document: Document, root: Fields, ostc: str) -> NamedBundle:
    found = multi_bundles(document, root)
    meant = [each for each in found if each.is_called(ostc)] if ostc else found
    if len(meant) == 1:
        return meant[0]
    names = ", ".join(each.ostc_id or each.bundle_id for each in found)
    if not ostc:
        raise several(document.file, names)
    message = f"{document.file} has no orchestration {ostc!r}, only {names}"
    raise InputError(message, code="unknown_ostc")


def several(origin: str, names: str) -> InputError:
    message = f"{origin} has several orchestrations: name one with --ostc ({names})"
    return InputError(message, code="several_orchestrations")


def _named(
    orchestration: BundleDocument, rules: dict[str, BundleDocument]
) -> dict[str, BundleDocument]:
    """Those that some step names; all of them where that cannot be told."""
    root, _ = document_of(orchestration, Findings())
    structure = root.get("structure") if root is not None else None
    if not isinstance(structure, Fields):
        return rules
    lookup, used = Bundle(orchestration, rules), set[int]()
    for step in structure.fields.values():
        rule = step.get("rule") if isinstance(step, Fields) else None
        if isinstance(rule, Scalar):
            used.add(id(lookup.rule(str(rule.value))))
    return {name: text for name, text in rules.items() if id(text) in used}


def _bundle(document: Document, root: Fields) -> Bundle:
    findings = Findings()
    bundle = read_bundle(document, root, findings)
    wrong = _errors(document, findings)
    if bundle is None or wrong:
        raise DefinitionError(wrong)
    return bundle


def _errors(document: Document, findings: Findings) -> list[Problem]:
    return [p for p in (*document.problems, *findings.problems) if p.severity == "error"]


def read_rules(rules: Rules) -> dict[str, BundleDocument]:
    """Rules by alias or address."""
    if isinstance(rules, Mapping):
        return {alias_of(str(name)): _given(str(name), rule) for name, rule in rules.items()}
    path = Path(rules)
    if path.is_dir():
        return _folder(path)
    return _rules_of_file(path)


def _given(name: str, rule: Any) -> BundleDocument:
    text = rule
    if not isinstance(rule, str):
        try:
            text = json.dumps(rule, separators=(",", ":"), ensure_ascii=False)
        except (TypeError, ValueError) as error:
            message = f"the rule {name!r} is not plain data: {error}"
            raise InputError(message, code="rules") from None
    return BundleDocument(text, f"<rule {name}>", address_in(text))


def _folder(path: Path) -> dict[str, BundleDocument]:
    found = sorted(file for file in path.glob(f"*{SUFFIX}") if not file.name.startswith("."))
    if not found:
        raise InputError(
            f"{path} has no rules: put each into a file <alias or address>{SUFFIX}", code="rules"
        )
    return {alias_of(file.stem): _from_file(file) for file in found}


def _from_file(file: Path) -> BundleDocument:
    text = _read(file)
    return BundleDocument(text, str(file), address_in(text), origin="folder")


def _rules_of_file(path: Path) -> dict[str, BundleDocument]:
    """The rules of a bundle. Its orchestration, if it has one, is not looked at."""
    text = _read(path)
    document = read_source(text, file=str(path))
    root = document.root
    if isinstance(root, Fields) and is_multi_bundle(root):
        return {
            name: rule
            for each in multi_bundles(document, root)
            for name, rule in each.bundle.rules.items()
        }
    if document.problems or not isinstance(root, Fields) or "rules" not in root:
        hint = "name a folder of rules, or a bundle (a JSON file with `rules`)"
        first = f"{document.problems[0]}; " if document.problems else ""
        raise InputError(f"{path} holds no rules: {first}{hint}", code="rules")
    findings = Findings()
    fields = {"orchestration": root, **root.fields}
    keys = {"orchestration": root.position, **root.keys}
    bundle = read_bundle(document, Fields(fields, keys, root.position), findings)
    if bundle is None or (wrong := _errors(document, findings)):
        raise DefinitionError(wrong if bundle is not None else findings.problems)
    return dict(bundle.rules)


def _read(path: Path) -> str:
    try:
        return files.read_text(path, SourceLimits().bytes_max)
    except files.FileRefused as error:
        if not path.exists():
            raise InputError(f"{path}: there is no such folder or bundle", code="rules") from None
        raise InputError(error.message, code="rules") from None
