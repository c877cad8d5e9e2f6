"""What tasks say about a cluster: NoETL runs scripts and containers there, and we run them here."""

from __future__ import annotations

from collections.abc import Collection

from anabranch.dialects.findings import Section
from anabranch.dialects.nodes import Fields, Items, Node, Scalar
from anabranch.dialects.noetl.respell.shape import Shape, fields

#: What is looked at in `job` of a script, and in `runtime` of a container.
JOB = ("env", "timeout")
RUNTIME = ("image", "command", "args", "env", "timeoutSeconds")

#: The later form of a container has what `runtime` has, and more, on the task itself.
BESIDE = (
    *("image", "command", "args", "resources", "namespace", "service_account", "backoff_limit"),
    *("restart_policy", "node_selector", "tolerations", "volumes", "volume_mounts"),
)
#: What a container would miss.
MOUNTS = ("files", "volumes", "volume_mounts")


def respell_container(task: Shape) -> None:
    """`{kind: container, image: …, command: […], args: […]}` as `runtime`, `env` as a mapping."""
    if "image" in task and "runtime" not in task.fields:
        at = task.keys["image"]
        runtime = Shape(fields({}, at))
        for key in [key for key in BESIDE if key in task]:
            if key == "args" and not isinstance(task.fields[key], Items):
                continue
            node, place = task.take(key)
            runtime.put(key, node, place)
        task.put("runtime", runtime.node(), at)
    env = task.fields.get("env")
    if isinstance(env, Items) and all(_variable(each) is not None for each in env):
        found = {name: value for each in env for name, value in (_variable(each) or {}).items()}
        task.fields["env"] = fields(found, env.position)


def _variable(node: Node) -> dict[str, Node] | None:
    """`{name: …, value: …}`; a value that a cluster keeps has no such form."""
    name = node.get("name") if isinstance(node, Fields) else None
    if not isinstance(node, Fields) or not isinstance(name, Scalar) or "value" not in node:
        return None
    return {str(name.value): node.fields["value"]}


def note_cluster(task: Section, key: str, known: Collection[str], what: str) -> None:
    """Notes the keys of a section that describe a cluster."""
    node = task.node.get(key)
    if isinstance(node, Fields):
        section = Section(node, f"`{key}` of {task.what}", task.findings)
        for name in node.fields:
            if name not in known:
                section.ignored(name, f"{what} where the engine or the worker runs")


def check_container(task: Section) -> None:
    note_cluster(task, "runtime", (*RUNTIME, *MOUNTS), "podman or docker runs it")
    if "args" in task:
        task.ignored("args", "a container gets its values in `env` and `runtime.args`")
    node = task.node.get("runtime")
    if not isinstance(node, Fields):
        return
    runtime = Section(node, f"`runtime` of {task.what}", task.findings)
    runtime.require("image", "name the image of the container")
    runtime.not_yet(*MOUNTS, hint="let the script fetch them, or build them into the image")
