"""Spec layering: what outer specs say for the tasks inside them.

    kind → executor.spec → step.spec → loop.spec → task.spec

Mappings merge key by key and the inner value wins; scalars and lists are replaced. What has a
meaning of its own at its level (the timeout of a step, its gate) is not handed down.
"""

from __future__ import annotations

import msgspec

from anabranch.dialects.findings import Section
from anabranch.dialects.nodes import Fields, Node
from anabranch.dialects.noetl.respell.shape import Shape, fields, merged

#: Keys of a policy that are for tasks.
FOR_TASKS = ("rules", "on_unmatched")


class Defaults(msgspec.Struct, frozen=True):
    """Parts of a spec, not read yet."""

    result: Node | None = None
    policy: Node | None = None
    timeout: Node | None = None  # of a task
    http_timeout: Node | None = None
    loop_mode: Node | None = None
    fanout: Node | None = None
    pool: Node | None = None

    def under(self, inner: Defaults) -> Defaults:
        """These, with what an inner spec says on top."""
        return Defaults(
            result=merged(self.result, inner.result),
            policy=merged(self.policy, inner.policy),
            timeout=merged(self.timeout, inner.timeout),
            http_timeout=merged(self.http_timeout, inner.http_timeout),
            loop_mode=merged(self.loop_mode, inner.loop_mode),
            fanout=merged(self.fanout, inner.fanout),
            pool=merged(self.pool, inner.pool),
        )


def read_defaults(spec: Section | None, policy: Section | None) -> Defaults:
    """What a spec at the executor, a step or a loop hands down."""
    if spec is None:
        return Defaults()
    return Defaults(
        result=spec.ask("result"),
        policy=_for_tasks(policy),
        loop_mode=spec.ask("loop_mode"),
        fanout=spec.ask("fanout"),
    )


def _for_tasks(policy: Section | None) -> Fields | None:
    if policy is None:
        return None
    shape = Shape(fields({}, policy.position))
    for key in FOR_TASKS:
        node = policy.ask(key)
        if node is not None:
            shape.put(key, node, policy.key_position(key))
    return shape.node() if shape.fields else None
