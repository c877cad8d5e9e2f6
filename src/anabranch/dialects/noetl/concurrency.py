"""How many runs of a playbook may be under way at once, and which of those that wait go first.

    concurrency:
      key: "{{ input.customer }}"    # runs with the same key count together; all of them without it
      limit: 3
      when_full: queue               # or reject, or cancel_oldest
      shared: false                  # true: runs of other definitions with this key count too
    priority: 10

`concurrency` may be a list: a run has to find room under each of its limits.
"""

from __future__ import annotations

from typing import get_args

from anabranch.dialects.findings import Findings, Section
from anabranch.dialects.nodes import Items, Node
from anabranch.dialects.noetl.templates import TemplateCompiler
from anabranch.net.net import ConcurrencyLimit, WhenFull

KEYS = ("key", "limit", "when_full", "shared")
NAMES = ("input", "workload", "labels", "run")  # that the template of a key can read
LIMIT_MAX = 1_000_000
LIMITS_MAX = 5
_HINT = "write how many runs may be under way at once, such as `limit: 3`"


class ConcurrencyReader:
    def __init__(self, templates: TemplateCompiler, findings: Findings) -> None:
        self._templates = templates.viewed(dict, also=NAMES)
        self._findings = findings
        self.reads: set[str] = set()  # keys of the input that keys of limits are made of

    def read(self, root: Section) -> tuple[ConcurrencyLimit, ...]:
        node = root.ask("concurrency")
        if node is None:
            return ()
        listed: tuple[Node, ...] = tuple(node.items) if isinstance(node, Items) else (node,)
        if not listed or len(listed) > LIMITS_MAX:
            message = f"`concurrency` has {len(listed)} limits"
            hint = f"write one limit, or a list of at most {LIMITS_MAX}"
            self._findings.add(node.position, "bad-number", message, hint)
        found = [self._limit(each) for each in listed[:LIMITS_MAX]]
        return tuple(each for each in found if each is not None)

    def _limit(self, node: Node) -> ConcurrencyLimit | None:
        section = self._findings.section(node, "`concurrency`")
        if section is None:
            return None
        section.require("limit", _HINT)
        limit = section.whole("limit", 1, least=1, most=LIMIT_MAX)
        when_full = section.choice("when_full", get_args(WhenFull), "queue")
        shared = section.flag("shared")
        text = section.text("key")
        section.finish()
        if text is None:
            if shared:
                hint = "write a `key`; runs of other definitions can only share that"
                section.report("shared", "missing-key", "`shared` without a `key`", hint)
            return ConcurrencyLimit(limit, None, when_full, shared)
        key = self._templates.text(text)
        for one in getattr(key, "readings", ()):
            if one.root in ("input", "workload") and len(one.path) > 1:
                self.reads.add(str(one.path[1]))
        return ConcurrencyLimit(limit, key, when_full, shared)
