"""What the source says of the fields of a class: the comment behind or above each of them."""

from __future__ import annotations

import ast
import inspect
import io
import textwrap
import tokenize


def field_comments(kind: type) -> dict[str, str]:
    """The comment of each annotated field that has one: `# …` behind it, or `#: …` above it."""
    source = textwrap.dedent(inspect.getsource(kind))
    comments = _comments(source)
    (found,) = ast.parse(source).body
    assert isinstance(found, ast.ClassDef)
    fields = [node for node in found.body if isinstance(node, ast.AnnAssign)]
    said = {_name(node): _above(comments, node) or _behind(comments, node) for node in fields}
    return {name: text for name, text in said.items() if text}


def _comments(source: str) -> dict[int, str]:
    """By line."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {token.start[0]: token.string for token in tokens if token.type == tokenize.COMMENT}


def _name(node: ast.AnnAssign) -> str:
    assert isinstance(node.target, ast.Name)
    return node.target.id


def _behind(comments: dict[int, str], node: ast.AnnAssign) -> str:
    return comments.get(node.end_lineno or node.lineno, "").lstrip("# ")


def _above(comments: dict[int, str], node: ast.AnnAssign) -> str:
    """The lines from `#:` down to the field; a comment that begins otherwise is not about it."""
    lines: list[str] = []
    for line in range(node.lineno - 1, 0, -1):
        comment = comments.get(line, "")
        lines.insert(0, comment.lstrip("#: "))
        if comment.startswith("#:"):
            return " ".join(lines)
        if not comment:
            break
    return ""
