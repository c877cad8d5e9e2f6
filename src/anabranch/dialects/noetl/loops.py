"""`loop`: the tasks of a step once per item of a collection.

    local     canonical: the loop belongs to its step; sequential, or several items at once
    fanout    the distributed profile: shards as jobs of their own, retries and limits per loop

Which of them is said by `loop_mode` in the spec of the executor or the step. `fanout.*` holds the
policies of the profile.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec
from msgspec.structs import replace

from anabranch.dialects.findings import Findings, Section
from anabranch.dialects.nodes import Fields, Node, Scalar
from anabranch.dialects.noetl.defaults import Defaults, read_defaults
from anabranch.dialects.noetl.names import RESERVED
from anabranch.dialects.noetl.patches import REDUCERS, Around, read_reducer
from anabranch.dialects.noetl.sources import DESCRIPTORS, Sources
from anabranch.dialects.noetl.templates import TemplateCompiler
from anabranch.expressions.jinja.jinja import has_template
from anabranch.expressions.port import Constant, Expression
from anabranch.literals import Reducer
from anabranch.net.net import Loop, Retry, Work
from anabranch.net.program import InnerLoop, Iteration, Program

IN_FLIGHT = 8  # items of a parallel loop, or shards of a fan-out, when nothing is said
IN_FLIGHT_MAX = 100_000
#: What `iter` holds of every item; an item of that name would hide it, or be hidden by it.
OF_EVERY_ITEM = frozenset(
    {
        "index",
        "iter_index",
        "iter_key",
        "loop_id",
        "shard_id",
        "parent",
        "_index",
        "_first",
        "_last",
    }
)
LoopMode = Literal["local", "fanout"]
LOOP_MODES: tuple[LoopMode, ...] = ("local", "fanout")
MODES = ("sequential", "parallel")
_LAZY = tuple(name for name in DESCRIPTORS if name != "range")
FAILURES = ("fail_fast", "best_effort")
EXECUTIONS = ("local", "distributed")


class Looping(msgspec.Struct, frozen=True):
    """A loop as far as it can be read before its tasks are."""

    loop: Loop
    iterator: str
    key: Expression | None
    lease_ms: int | None
    retries: int
    workers_lost_max: int | None  # of one shard
    defaults: Defaults
    around: Around

    def one_at_a_time(self) -> Looping:
        """Items that wait for an answer from outside have a shard, and so a job, each."""
        return replace(self, loop=replace(self.loop, shard_size=1))

    def work(self, program: Program, retry: Retry, timeout_ms: int | None) -> Work:
        iteration = Iteration(
            program,
            self.iterator,
            parallel=self.around.together and self.loop.mode == "local",
            key=self.key,
            reducers=self.loop.reducers,
            keep_results=self.loop.keep_results,
            stops=_ends_at_once(self.loop),
            retries=self.loop.item_retries,
            ordered=not self.around.together,
            item=("iter", self.iterator),
            result=("outcome", "result"),
        )
        if retry.attempts == 1 and self.retries:
            retry = Retry(attempts=1 + self.retries, delay_ms=1_000)
        work = Work(
            "loop.shard",
            program=iteration,
            timeout_ms=timeout_ms,
            retry=retry,
            workers_lost_max=self.workers_lost_max,
        )
        return work if self.lease_ms is None else replace(work, lease_ms=self.lease_ms)


class Fanout(msgspec.Struct, frozen=True):
    """The policies of the profile."""

    fail_fast: bool | None = None
    allow_partial: bool | None = None
    retries: int | None = None  # as it is written; an item that kills its worker counts as well
    shards_max: int = 10_000_000
    window: Node | None = None
    shard_size: int | None = None
    tolerate: int = 0
    tolerate_percent: float = 0.0
    queue_ttl_ms: int | None = None
    lease_ms: int | None = None
    iter_key: Expression | None = None
    reducers: Mapping[str, Reducer] | None = None
    keep_results: bool = True


class LoopReader(msgspec.Struct, frozen=True):
    """Reads the loops of one playbook."""

    templates: TemplateCompiler
    findings: Findings

    def looping(
        self, step: Section, defaults: Defaults, failure: str | None, retry: Retry
    ) -> Looping | None:
        """The loop of a step, None when it has none."""
        loop = step.section("loop")
        if loop is None:
            return None
        spec = loop.section("spec")
        policy = None if spec is None else spec.section("policy")
        defaults = defaults.under(read_defaults(spec, policy))
        mode = self.loop_mode(defaults)
        fanout = self.fanout(defaults)
        over = Sources(self.templates, self.findings).over(loop)
        iterator = self.iterator(loop)
        kind = None if spec is None or "mode" not in spec else self.mode(spec)
        in_flight = None if spec is None else spec.ask("max_in_flight")
        failure = self._policy(policy) or failure
        if spec is not None:
            self._no_frame(spec)
            spec.finish()
        loop.finish()
        best_effort = failure == "best_effort"
        retries = fanout.retries or retry.attempts - 1
        common = Loop(
            over,
            mode=mode,
            fail_fast=_or(fanout.fail_fast, mode == "local" and not best_effort),
            allow_partial=_or(fanout.allow_partial, best_effort),
            shard_size=fanout.shard_size,
            tolerate=fanout.tolerate,
            tolerate_percent=fanout.tolerate_percent,
            item_retries=retries,
            shards_max=fanout.shards_max,
            keep_results=fanout.keep_results,
            reducers=fanout.reducers or {},
            queue_ttl_ms=fanout.queue_ttl_ms,
        )
        if mode == "fanout":
            self._lost_order(loop, kind)
            made = self._distributed(common, fanout.window or in_flight)
        else:
            made = replace(common, window=self._at_once(kind or "sequential", in_flight, loop))
        together = mode == "fanout" or kind == "parallel"
        around = Around(loops=True, together=together, reducers=fanout.reducers or {})
        return Looping(
            made,
            iterator,
            fanout.iter_key,
            fanout.lease_ms,
            retries,
            fanout.retries,
            defaults,
            around,
        )

    # -- how many at once --------------------------------------------------------------------

    def _at_once(self, mode: str, in_flight: Node | None, section: Section) -> Expression | None:
        """How many items of a local loop run at once; None is one after the other."""
        if mode == "sequential":
            if in_flight is not None:
                self.no_effect(section, in_flight)
            return None
        return Constant(IN_FLIGHT) if in_flight is None else self.count(in_flight)

    def no_effect(self, section: Section, in_flight: Node) -> None:
        message = f"{section.what} is sequential, so `max_in_flight` has no effect"
        hint = "write `mode: parallel`"
        self.findings.add(in_flight.position, "ignored-key", message, hint, "note")
        self.count(in_flight)

    def _distributed(self, loop: Loop, window: Node | None) -> Loop:
        wanted = Constant(IN_FLIGHT) if window is None else self.count(window)
        return replace(loop, window=wanted)

    def count(self, node: Node) -> Expression:
        """A number of things at once, or a template that gives one."""
        value = node.value if isinstance(node, Scalar) else None
        if isinstance(value, str) and has_template(value):
            return self.templates.tree(node)
        if isinstance(value, str) and value.isascii() and value.isdecimal():
            value = int(value)
        what = "the number of items in flight"
        if type(value) is not int:
            self.findings.wrong_type(node, what, "a whole number or a template")
        elif not 1 <= value <= IN_FLIGHT_MAX:
            hint = f"write a number from 1 to {IN_FLIGHT_MAX}"
            self.findings.add(node.position, "bad-number", f"{what} is {value}", hint)
        else:
            return Constant(value)
        return Constant(1)

    def mode(self, spec: Section) -> str:
        return spec.choice("mode", MODES, "sequential")

    def _no_frame(self, spec: Section) -> None:
        """What is left of `frame` after a cursor was turned into a collection."""
        frame = spec.section("frame")
        for key in frame.node.fields if frame is not None else ():
            assert frame is not None, "it has a key"
            message = f"`{key}` of {frame.what} is nothing a loop over this collection can do"
            hint = "write `process: row`" if key == "process" else "leave it out"
            frame.report(key, "unknown-key", message, hint)

    def _lost_order(self, loop: Section, mode: str | None) -> None:
        if mode == "sequential":
            message = f"{loop.what} is sequential, but a fan-out runs its items in any order"
            hint = "give the step `spec: {loop_mode: local}`, or leave `mode` out"
            self.findings.warn(loop.position, "lost-order", message, hint)

    # -- the item ----------------------------------------------------------------------------

    def iterator(self, loop: Section) -> str:
        node = loop.text("iterator")
        name = "item" if node is None else str(node.value)
        taken = name in RESERVED or name in OF_EVERY_ITEM
        if node is not None and (not name.isidentifier() or taken):
            hint = "choose another one" if taken else "use a word of letters, digits and `_`"
            message = f"{name!r} cannot be the name of an item"
            self.findings.add(node.position, "bad-name", message, hint)
        return name

    # -- policies ----------------------------------------------------------------------------

    def _policy(self, policy: Section | None) -> str | None:
        if policy is None:
            return None
        policy.choice("exec", EXECUTIONS, "local")
        failure = read_failure(policy)
        policy.finish()
        return failure

    def loop_mode(self, defaults: Defaults) -> LoopMode:
        node = defaults.loop_mode
        if node is None:
            return "local"
        holder = Fields({"loop_mode": node}, {"loop_mode": node.position}, node.position)
        return Section(holder, "the spec", self.findings).choice("loop_mode", LOOP_MODES, "local")

    def fanout(self, defaults: Defaults) -> Fanout:
        node = defaults.fanout
        fanout = None if node is None else self.findings.section(node, "`fanout`")
        if fanout is None:
            return Fanout()
        made = Fanout(
            fail_fast=fanout.flag("fail_fast") if "fail_fast" in fanout else None,
            allow_partial=fanout.flag("allow_partial") if "allow_partial" in fanout else None,
            retries=self._retries(fanout),
            shards_max=fanout.whole("max_shards", 10_000_000, least=1, most=10**12),
            window=fanout.ask("max_concurrent"),
            shard_size=self._shard_size(fanout),
            tolerate=fanout.whole("tolerated_failures", 0, least=0, most=10**12),
            tolerate_percent=fanout.number(
                "tolerated_failure_percentage", 0.0, least=0.0, most=100.0
            ),
            queue_ttl_ms=fanout.duration_ms("queue_ttl_s"),
            lease_ms=fanout.duration_ms("lease_s"),
            iter_key=self._key(fanout),
            reducers=self._reducers(fanout),
            keep_results=fanout.flag("keep_results", True),
        )
        fanout.finish(also=("fail_fast", "allow_partial"))
        return made

    def _retries(self, fanout: Section) -> int | None:
        if "max_job_retries" not in fanout:
            fanout.ask("max_job_retries")
            return None
        return fanout.whole("max_job_retries", 0, least=0, most=1_000)

    def _shard_size(self, fanout: Section) -> int | None:
        node = fanout.ask("shard_size")
        if node is None or (isinstance(node, Scalar) and node.value == "auto"):
            return None
        if isinstance(node, Scalar) and isinstance(node.value, str):
            message = f"`shard_size` of {fanout.what} is {node.value!r}"
            self.findings.add(node.position, "bad-choice", message, "write `auto` or a number")
            return None
        return fanout.whole("shard_size", 1, least=1, most=1_000_000)

    def _key(self, fanout: Section) -> Expression | None:
        node = fanout.ask("iter_key")
        if node is None:
            return None
        text = node.value if isinstance(node, Scalar) else None
        if not isinstance(text, str) or not has_template(text):
            expected = 'a template such as "{{ iter.item.id }}"'
            self.findings.wrong_type(node, f"`iter_key` of {fanout.what}", expected)
            return None
        return self.templates.tree(node)

    def _reducers(self, fanout: Section) -> Mapping[str, Reducer]:
        section = fanout.section("reducers")
        if section is None:
            return {}
        found: dict[str, Reducer] = {}
        for key, node in section.node.fields.items():
            found[key] = read_reducer(node, self.findings)
            if isinstance(node, Scalar) and node.value == "set":
                message = f"the reducer of {key!r} is `set`, which keeps only the last value"
                hint = "choose one of " + ", ".join(REDUCERS[1:])
                self.findings.add(node.position, "bad-choice", message, hint)
        return found


def read_inner_loop(section: Section, templates: TemplateCompiler, findings: Findings) -> InnerLoop:
    """`loop` of a task: its work once per item, inside the pipeline.

    It knows less than the loop of a step: a list, a mapping or a range to go through, one item
    after the other or several at once, and whether an item that fails ends it. Its program is put
    in by the reader of the task.
    """
    loops = LoopReader(templates, findings)
    over = Sources(templates, findings).over(section)
    node = section.node.get("in")
    lazy = [key for key in _LAZY if isinstance(node, Fields) and key in node]
    if lazy:
        message = f"`in` of {section.what} describes a collection ({lazy[0]}) to be read lazily"
        hint = "loop over it in a step; a task goes through a list, a mapping or a range"
        assert node is not None, "it has a key"
        findings.add(node.position, "bad-choice", message, hint)
    iterator = loops.iterator(section)
    spec = section.section("spec")
    window: Expression | None = None
    best_effort = False
    if spec is not None:
        mode = loops.mode(spec) if "mode" in spec else "sequential"
        in_flight = spec.ask("max_in_flight")
        policy = spec.section("policy")
        if policy is not None:
            best_effort = read_failure(policy) == "best_effort"
            policy.finish()
        spec.finish(also=("mode",))
        if mode == "parallel":
            window = Constant(IN_FLIGHT) if in_flight is None else loops.count(in_flight)
        elif in_flight is not None:
            loops.no_effect(section, in_flight)
    section.finish()
    return InnerLoop(Program(()), over, iterator, window, best_effort)


def read_failure(policy: Section) -> str | None:
    """`failure: {mode: fail_fast | best_effort}`."""
    failure = policy.section("failure")
    if failure is None:
        return None
    mode = failure.choice("mode", FAILURES, "fail_fast") if "mode" in failure else None
    failure.finish(also=("mode",))
    return mode


def _ends_at_once(loop: Loop) -> bool:
    """One item that fails is one too many, and nothing more is begun then."""
    return loop.fail_fast and not loop.tolerate and not loop.tolerate_percent


def _or(value: bool | None, default: bool) -> bool:
    return default if value is None else value
