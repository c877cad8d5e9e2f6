"""`loop.cursor`: the later form for collections that are read frame by frame, as a canonical loop.

    cursor: {kind: postgres, auth: db, claim: "SELECT …", options: {key: id}}
        ──▶  in: {sql: {kind: postgres, auth: db, query: "SELECT …", key: id}}
    cursor: {kind: postgres, auth: db, claim: "UPDATE … RETURNING …"}
        ──▶  in: {claim: {kind: postgres, auth: db, command: "UPDATE … RETURNING …"}}
    cursor: {kind: http, claim: "https://…", options: {items: $.data, next: $.next}}
        ──▶  in: {pages: {url: "https://…", items: $.data, next: $.next}}

Of `spec.frame`, `max_rows` is the size of a shard, `lease_seconds` its lease, `max_attempts` how
often an item is tried; `row_concurrency` multiplies the items in flight, and `process: frame` makes
one item of all the rows of a claim. What has an unexpected shape is left for the reader to report.
"""

from __future__ import annotations

import re

from anabranch.dialects.nodes import Fields, Node, Scalar
from anabranch.dialects.noetl.respell.shape import Shape, fields
from anabranch.dialects.noetl.respell.tasks import RespellReport
from anabranch.expressions.jinja.jinja import has_template

DATABASES = ("postgres", "sqlite", "duckdb")
STATEMENTS = ("claim", "query", "command")
ADDRESSES = ("claim", "url", "endpoint")
IN_FLIGHT = 8
FRAME_ROWS = "__frame_max_rows"
#: Parts of a frame that say how NoETL's workers hold one; ours need not be told.
UNUSED = ("max_seconds", "max_bytes", "heartbeat_seconds", "verify_ipc", "retry_mode")
#: Parts of a frame that a loop says in other words.
MEANT = ("max_rows", "lease_seconds", "max_attempts", "row_concurrency", "process")
_WRITES = re.compile(r"\b(update|delete|insert|merge)\b", re.IGNORECASE)
_NOISE = re.compile(r"--[^\n]*+|/\*|'[^']*+'")


def respell_cursor(loop: Shape, what: str, seen: RespellReport) -> None:
    """Put the collection under `in`, and what the frame says where a loop says it."""
    cursor = loop.mapping("cursor")
    if cursor is not None and "in" not in loop:
        source = _source(cursor)
        if source is not None:
            seen.saw_later("cursor", loop.keys["cursor"])
            name, collection = source
            node, at = loop.take("cursor")
            _frame(loop, name, collection, what, seen)
            over = fields({name: collection.node()}, node.position)
            loop.put("in", over, at, before=tuple(loop.fields))
    mode = loop.find("spec", "mode")
    if isinstance(mode, Scalar) and mode.value == "cursor" and "cursor" not in loop:
        seen.saw_later("mode: cursor", mode.position)
        loop.deepen(("spec", "mode"), Scalar("parallel", mode.position), mode.position)


def _source(cursor: Fields) -> tuple[str, Shape] | None:
    kind = cursor.get("kind")
    options = cursor.get("options")
    if options is not None and not isinstance(options, Fields):
        return None
    made = Shape(cursor)
    made.fields.pop("options", None)
    made.keys.pop("options", None)
    if isinstance(options, Fields):
        if options.fields.keys() & made.fields.keys():
            return None
        for key, node in options.fields.items():
            made.put(key, node, options.keys[key])
    if isinstance(kind, Scalar) and kind.value in DATABASES:
        return _statement(made)
    if isinstance(kind, Scalar) and kind.value == "http":
        made.take("kind")
        return ("pages", made) if _one(made, ADDRESSES, "url") else None
    return None


def _statement(made: Shape) -> tuple[str, Shape] | None:
    if not _one(made, STATEMENTS, "query"):
        return None
    text = made.fields["query"]
    if not isinstance(text, Scalar) or not isinstance(text.value, str):
        return None
    if not _WRITES.search(_without_noise(text.value)):
        return "sql", made
    made.rename("query", "command")
    return "claim", made


def _without_noise(statement: str) -> str:
    """Without comments and texts. A comment that nothing closes is none; its end is looked for
    from no other one behind it."""
    parts, at, looked = [], 0, 0
    while found := _NOISE.search(statement, looked):
        start, looked = found.span()
        if found[0] == "/*":
            closed = statement.find("*/", looked)
            if closed < 0:
                statement = statement[:start] + statement[start:].replace("/*", "  ")
                continue
            looked = closed + 2
        parts.append(statement[at:start])
        at = looked
    return " ".join([*parts, statement[at:]])


def _one(made: Shape, names: tuple[str, ...], canonical: str) -> bool:
    found = [name for name in names if name in made]
    if len(found) != 1:
        return False
    if found[0] != canonical:
        made.rename(found[0], canonical)
    return True


def _frame(loop: Shape, source: str, collection: Shape, what: str, seen: RespellReport) -> None:
    frame_node = loop.find("spec", "frame")
    if not isinstance(frame_node, Fields):
        return
    frame = Shape(frame_node)
    _rows_of_a_frame(frame, collection)
    lease = frame.fields.get("lease_seconds")
    if isinstance(lease, Scalar) and has_template(str(lease.value)):
        _, at = frame.take("lease_seconds")
        message = f"`lease_seconds` of `frame` of {what} is a template, which is ignored"
        hint = "write the number; without it the lease is as long as any other"
        seen.findings.add(at, "ignored-key", message, hint, "note")
    for key, place in (("max_rows", "shard_size"), ("lease_seconds", "lease_s")):
        if key in frame and loop.find("spec", "fanout", place) is None:
            node, at = frame.take(key)
            loop.deepen(("spec", "fanout", place), node, at)
    _attempts(loop, frame)
    _in_flight(loop, frame)
    _process(frame, source, collection)
    for key in UNUSED:
        if key in frame:
            _, at = frame.take(key)
            message = f"`{key}` of `frame` of {what} is ignored"
            seen.findings.add(at, "ignored-key", message, severity="note")
    spec = loop.mapping("spec")
    assert spec is not None, "it has a frame"
    rest = Shape(spec)
    if frame.fields:
        rest.fields["frame"] = frame.node()
    else:
        rest.take("frame")
    loop.fields["spec"] = rest.node()


def _rows_of_a_frame(frame: Shape, collection: Shape) -> None:
    """Statements read how many rows to claim as `__frame_max_rows`; the frame says it."""
    rows, text = _number(frame.fields.get("max_rows")), collection.fields.get("command")
    if rows is not None and isinstance(text, Scalar) and isinstance(text.value, str):
        said = re.sub(rf"\b{FRAME_ROWS}\b", str(rows), text.value)
        if said != text.value:
            collection.fields["command"] = Scalar(said, text.position, text.style)


def _attempts(loop: Shape, frame: Shape) -> None:
    attempts = _number(frame.fields.get("max_attempts"))
    if attempts is not None and loop.find("spec", "fanout", "max_job_retries") is None:
        node, at = frame.take("max_attempts")
        retries = Scalar(attempts - 1, node.position)
        loop.deepen(("spec", "fanout", "max_job_retries"), retries, at)


def _in_flight(loop: Shape, frame: Shape) -> None:
    """Frames at once times rows at once."""
    rows = _number(frame.fields.get("row_concurrency"))
    if rows is None:
        return
    given = loop.find("spec", "max_in_flight")
    frames = IN_FLIGHT if given is None else _number(given)
    if frames is None:
        return
    _, at = frame.take("row_concurrency")
    loop.deepen(("spec", "max_in_flight"), Scalar(frames * rows, at), at)


def _number(node: Node | None) -> int | None:
    if isinstance(node, Scalar) and type(node.value) is int and node.value >= 1:
        return node.value
    return None


def _process(frame: Shape, source: str, collection: Shape) -> None:
    node = frame.fields.get("process")
    word = node.value if isinstance(node, Scalar) else None
    if word == "row":
        frame.take("process")
    elif word == "frame" and source == "claim":
        _, at = frame.take("process")
        collection.put("whole", Scalar(True, at), at)
