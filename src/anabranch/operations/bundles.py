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
    Text,
    address_in,
    alias_of,
    bundle_text,
    document_of,
    read_bundle,
)
from anabranch.errors import DefinitionError, InputError

Rules = str | os.PathLike[str] | Mapping[str, Any]

SUFFIX = ".json"


def with_rules(text: str, origin: str, rules: Rules) -> str:
    """The text of the bundle; rules given here go before those the definition brings along."""
    document = read_source(text, file=origin)
    root = document.root
    if not isinstance(root, Fields) or not ("structure" in root or "orchestration" in root):
        raise InputError(
            f"{origin} is not an orchestration: only those take rules", code="not_orchestration"
        )
    if "structure" in root:
        bundle = Bundle(Text(text, origin))
    else:
        bundle = _bundle(document, root)
    given = read_rules(rules)
    if not isinstance(rules, Mapping):  # a folder may serve many orchestrations
        given = _named(bundle.orchestration, given)
    return bundle_text(Bundle(bundle.orchestration, {**bundle.rules, **given}, bundle.chain))


def _named(orchestration: Text, rules: dict[str, Text]) -> dict[str, Text]:
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
    problems = (*document.problems, *findings.problems)
    if bundle is None or problems:
        raise DefinitionError(problems)
    return bundle


def read_rules(rules: Rules) -> dict[str, Text]:
    """Rules by alias or address."""
    if isinstance(rules, Mapping):
        return {alias_of(str(name)): _given(str(name), rule) for name, rule in rules.items()}
    path = Path(rules)
    if path.is_dir():
        return _folder(path)
    return _rules_of_file(path)


def _given(name: str, rule: Any) -> Text:
    text = rule
    if not isinstance(rule, str):
        try:
            text = json.dumps(rule, separators=(",", ":"), ensure_ascii=False)
        except (TypeError, ValueError) as error:
            message = f"the rule {name!r} is not plain data: {error}"
            raise InputError(message, code="rules") from None
    return Text(text, f"<rule {name}>", address_in(text))


def _folder(path: Path) -> dict[str, Text]:
    found = sorted(file for file in path.glob(f"*{SUFFIX}") if not file.name.startswith("."))
    if not found:
        raise InputError(
            f"{path} has no rules: put each into a file <alias or address>{SUFFIX}", code="rules"
        )
    return {alias_of(file.stem): _from_file(file) for file in found}


def _from_file(file: Path) -> Text:
    text = _read(file)
    return Text(text, str(file), address_in(text), origin="folder")


def _rules_of_file(path: Path) -> dict[str, Text]:
    """The rules of a bundle. Its orchestration, if it has one, is not looked at."""
    text = _read(path)
    document = read_source(text, file=str(path))
    root = document.root
    if document.problems or not isinstance(root, Fields) or "rules" not in root:
        hint = "name a folder of rules, or a bundle (a JSON file with `rules`)"
        first = f"{document.problems[0]}; " if document.problems else ""
        raise InputError(f"{path} holds no rules: {first}{hint}", code="rules")
    findings = Findings()
    fields = {"orchestration": root, **root.fields}
    keys = {"orchestration": root.position, **root.keys}
    bundle = read_bundle(document, Fields(fields, keys, root.position), findings)
    if bundle is None or findings.problems:
        raise DefinitionError(findings.problems)
    return dict(bundle.rules)


def _read(path: Path) -> str:
    try:
        return files.read_text(path, SourceLimits().bytes_max)
    except files.FileRefused as error:
        if not path.exists():
            raise InputError(f"{path}: there is no such folder or bundle", code="rules") from None
        raise InputError(error.message, code="rules") from None
