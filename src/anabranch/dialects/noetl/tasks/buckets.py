"""Tasks that read or write objects of buckets: `gcs`, scripts and artifacts at `gs://` or `s3://`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anabranch.dialects.findings import Section
from anabranch.dialects.nodes import Fields, Node, Scalar
from anabranch.dialects.noetl.lookups import is_literal
from anabranch.net.net import ExtraNeed

EXTRA = "buckets"
_SCHEMES = ("gs://", "s3://")
_CLOUDS = ("gcs", "s3")


def check_gcs(task: Section, given: Mapping[str, Any]) -> None:
    """What an upload cannot do without, as far as it is written there."""
    if "args" in task:
        task.ignored("args", "an upload is told what to do by its own keys")
    if "source" in given and "data" in given:
        at, message = task.key_position("data"), f"{task.what} has both `source` and `data`"
        task.findings.add(at, "conflicting-keys", message, "keep one of them")
    if "source" not in given and "data" not in given:
        task.require("source", "name the file to upload, or give `data`")
    node = task.node.get("destination")
    if isinstance(node, Scalar) and is_literal(node) and not str(node.value).startswith("gs://"):
        message = f"`destination` of {task.what} is {str(node.value)[:60]!r}"
        task.findings.add(node.position, "bad-value", message, "write gs://bucket/key")


def note_object(task: Section, kind: str, needs: list[ExtraNeed]) -> None:
    """Whether the task needs the packages for buckets."""
    at = task.node.get("kind") if kind == "gcs" else _script(task) or _artifact(task, kind)
    if at is not None:
        needs.append(ExtraNeed(EXTRA, task.what, at.position))


def _script(task: Section) -> Node | None:
    script = task.node.get("script")
    if not isinstance(script, Fields):
        return script if _is_object(script) else None
    source = script.get("source")
    word = source.get("type") if isinstance(source, Fields) else None
    if isinstance(word, Scalar):
        return word if word.value in _CLOUDS else None
    uri = script.get("uri")
    return uri if _is_object(uri) else None


def _artifact(task: Section, kind: str) -> Node | None:
    uri = task.node.get("uri") if kind == "artifact" else None
    return uri if _is_object(uri) else None


def _is_object(node: Node | None) -> bool:
    return isinstance(node, Scalar) and str(node.value).startswith(_SCHEMES)
