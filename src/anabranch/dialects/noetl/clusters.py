"""What tasks say about a cluster: NoETL runs scripts and containers there, and we run them here."""

from __future__ import annotations

from collections.abc import Collection

from anabranch.dialects.findings import Section
from anabranch.dialects.nodes import Fields

#: What is looked at in `job` of a script, and in `runtime` of a container.
JOB = ("env", "timeout")
RUNTIME = ("image", "command", "args", "env", "timeoutSeconds")


def note_cluster(task: Section, key: str, known: Collection[str], what: str) -> None:
    """Notes the keys of a section that describe a cluster."""
    node = task.node.get(key)
    if isinstance(node, Fields):
        section = Section(node, f"`{key}` of {task.what}", task.findings)
        for name in node.fields:
            if name not in known:
                section.ignored(name, f"{what} where the engine or the worker runs")


def check_container(task: Section) -> None:
    note_cluster(task, "runtime", (*RUNTIME, "files"), "podman or docker runs it")
    if "args" in task:
        task.ignored("args", "a container gets its values in `env` and `runtime.args`")
    node = task.node.get("runtime")
    if not isinstance(node, Fields):
        return
    runtime = Section(node, f"`runtime` of {task.what}", task.findings)
    if "image" not in runtime:
        runtime.require("image", "name the image of the container")
    runtime.not_yet("files", hint="let the script fetch them, or build them into the image")
