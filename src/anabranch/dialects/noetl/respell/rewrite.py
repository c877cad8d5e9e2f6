"""A playbook written again in canonical v10.

The document is respelled exactly as before compiling, and written back. So the text compiles to
the same net, and writing it once more changes nothing. Comments move with what they stand at;
aliases and merge keys are written out. A file ending in `.json` stays JSON. What is canonical
already stays as its author laid it out, letter for letter.
"""

from __future__ import annotations

import json

from anabranch.dialects.findings import Findings
from anabranch.dialects.nodes import Fields, plain
from anabranch.dialects.noetl.respell.playbook import respelled
from anabranch.dialects.source import read_source
from anabranch.dialects.yaml_comments import Comments, read_comments
from anabranch.dialects.yaml_writer import YamlWriter, lines_of
from anabranch.errors import DefinitionError
from anabranch.net.problems import Position, Problem

SPACED = frozenset({"workflow"})
HEAD = frozenset({"apiVersion", "kind", "metadata"})


def canonical(text: str | bytes, file: str = "<text>") -> str:
    """The playbook in canonical v10; DefinitionError when it cannot be read as a playbook."""
    document = read_source(text, file=file)
    root = document.root
    findings = Findings()
    if isinstance(root, Fields) and "workflow" in root:
        root = respelled(root, findings)
    elif not document.problems:
        message, hint = "this is not a playbook", "only playbooks can be rewritten"
        at = Position(1, 1, file) if root is None else root.position
        findings.add(at, "unknown-dialect", message, hint)
    problems = [*document.problems, *findings.problems]
    errors = tuple(problem for problem in problems if problem.severity == "error")
    if errors or document.root is None or not isinstance(root, Fields):
        raise DefinitionError(errors)
    if plain(root) == plain(document.root):
        return document.text
    if file.lower().endswith(".json"):
        return json.dumps(plain(root), indent=2, ensure_ascii=False) + "\n"
    comments = _comments(document.text, root)
    written = YamlWriter(comments, spaced=SPACED, together=HEAD).write(root)
    again = read_source(written, file=file)
    if again.root is None or plain(again.root) != plain(root):
        message, hint = "something in it cannot be written as YAML", "shorten very long keys"
        raise DefinitionError((Problem(root.position, "bad-value", message, hint),))
    return written


def _comments(text: str, root: Fields) -> Comments:
    # A JSON text has none, and may hold characters that the scanner for comments refuses.
    return Comments() if text.lstrip()[:1] in ("{", "[") else read_comments(text, lines_of(root))
