"""The workbook: named tasks that steps use by `kind: workbook`.

A task of the workbook is put in the place of the task that names it; arguments given there are
laid over its own, and so is its `spec`.
"""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.dialects.findings import Findings, Section
from anabranch.dialects.nodes import Fields, Items, Node, Scalar
from anabranch.dialects.noetl.respell.shape import Shape, merged
from anabranch.net.problems import did_you_mean

LAID_OVER = ("args", "spec")


class Workbook:
    def __init__(self, tasks: Mapping[str, Fields], findings: Findings) -> None:
        self._tasks = tasks
        self._findings = findings

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._tasks)

    def inlined(self, task: Section) -> Fields | None:
        """The task with what the workbook says about it."""
        label = task.text("name")
        wanted = task.text("task") or label
        if wanted is None:
            task.missing("name", "name a task of the workbook")
            return None
        name = str(wanted.value)
        found = self._tasks.get(name)
        if found is None:
            message = f"{task.what} names the workbook task {name!r}, which does not exist"
            hint = did_you_mean(name, self._tasks) or "add it to `workbook`"
            self._findings.add(wanted.position, "unknown-task", message, hint)
            return None
        kind = found.get("kind")
        if isinstance(kind, Scalar) and kind.value == "workbook":
            message = f"the workbook task {name!r} is of the kind workbook itself"
            self._findings.add(found.position, "unknown-task", message, "name the task itself")
            return None
        return self._laid_over(task, found, label)

    def _laid_over(self, task: Section, found: Fields, label: Scalar | None) -> Fields:
        own = task.node
        shape = Shape(found)
        for key, node in own.fields.items():
            if key in ("kind", "task", "name"):
                continue
            laid: Node | None = merged(found.get(key), node) if key in LAID_OVER else node
            assert laid is not None, "the task has this key"
            shape.put(key, laid, own.keys[key])
        if label is not None:
            shape.put("name", own.fields["name"], own.keys["name"])
        return shape.node()


def read_workbook(root: Section, findings: Findings) -> Workbook:
    node = root.ask("workbook")
    if node is None or (isinstance(node, Fields | Items) and not _size(node)):
        return Workbook({}, findings)
    if isinstance(node, Items):
        for number, each in enumerate(node, 1):
            section = findings.section(each, f"workbook task {number}")
            if section is not None:
                section.require("name", "give the task a name")
        message, hint = "the tasks of the workbook need names of their own", "rename one of them"
        findings.add(node.position, "duplicate-label", message, hint)
        return Workbook({}, findings)
    book = findings.section(node, "`workbook`")
    tasks = None if book is None else book.section("tasks")
    if book is None or tasks is None:
        if book is not None:
            book.require("tasks", "write `workbook: {tasks: {name: {kind: …}}}`")
        return Workbook({}, findings)
    book.finish()
    found: dict[str, Fields] = {}
    for name, each in tasks.node.fields.items():
        section = findings.section(each, f"workbook task {name!r}")
        if section is not None:
            section.require("kind", "say what kind of task it is")
            found[name] = section.node
    return Workbook(found, findings)


def _size(node: Fields | Items) -> int:
    return len(node.fields) if isinstance(node, Fields) else len(node.items)
