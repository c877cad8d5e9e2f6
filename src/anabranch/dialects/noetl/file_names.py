"""The files that a playbook names where its tasks, its loops and its keychain say so.

What is worked out, or stands in the text of a statement, is not seen here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from urllib.parse import unquote, urlsplit

from anabranch.dialects.nodes import Fields, Items, Node, Scalar
from anabranch.expressions.jinja.jinja import has_template
from anabranch.net.net import FileName

_DATABASE = ("database", "db", "path", "dsn", "connection", "db_path")
#: By kind of task, of a side of a transfer, or of an entry of the keychain.
_KEYS: Mapping[str, tuple[str, ...]] = {
    "artifact": ("uri",),
    "gcs": ("source",),
    "sqlite": _DATABASE,
    "duckdb": _DATABASE,
    "secrets": ("path",),
    "file": ("path", "file"),
}
_LOOPS = ("jsonl", "csv", "parquet", "listing")
_SECTIONS = ("keychain", "workbook", "workflow")


def file_names(root: Fields) -> tuple[FileName, ...]:
    """In the order in which they stand there."""
    sections = (root.get(name) for name in _SECTIONS)
    return tuple(name for section in sections if section for name in _in(section))


def _in(root: Node) -> Iterator[FileName]:
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Items):
            waiting.extend(reversed(node.items))
        if isinstance(node, Fields):
            for each in _named_by(node):
                yield from _file(each)
            waiting.extend(reversed(list(node.fields.values())))


def _named_by(node: Fields) -> Iterator[Node | None]:
    for word in (node.get("kind"), node.get("tool")):
        if isinstance(word, Scalar):
            yield from (node.get(key) for key in _KEYS.get(str(word.value), ()))
    script = node.get("script")
    yield script.get("uri") if isinstance(script, Fields) else script
    over = node.get("in")
    if isinstance(over, Fields):
        yield from (over.get(key) for key in _LOOPS)


def _file(node: Node | None) -> Iterator[FileName]:
    text = node.value if isinstance(node, Scalar) else None
    if not isinstance(text, str) or has_template(text) or node is None:
        return
    path = text.removeprefix("sqlite:///")
    if path.startswith("file://"):
        path = unquote(urlsplit(path).path)
    if path and "://" not in path and not path.startswith((":memory:", "file:")):
        yield FileName(path, node.position)
