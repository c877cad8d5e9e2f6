"""Random playbooks to be redriven, each fixed by its seed: some of their work fails the first time.

What a step comes to is a function of what it was given, and no step reads what another one may be
writing at the same time. So a playbook comes to one end, whatever the order of things: a redriven
run must come to what a run without the failures comes to, and must not do again what does not
depend on them. `depends` says which steps may read or follow which, by the text alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from anabranch.kernel.values import Answer, failed, succeeded
from anabranch.work.port import Task

_DONE = "{{ event.name == 'step.done' }}"
_NUMBER = 1_000
Fields = dict[str, Any]


@dataclass(slots=True)
class RandomRedrive:
    """A playbook, what fails the first time, and what depends on what."""

    seed: int
    dice: Random = field(init=False)
    items_dice: Random = field(init=False)
    steps: dict[str, Fields] = field(default_factory=dict)
    loops: dict[str, int] = field(default_factory=dict)  # step → how many items
    decisions: set[str] = field(default_factory=set)
    writes: dict[str, str] = field(default_factory=dict)  # step → the key it writes
    items_write: set[str] = field(default_factory=set)  # loops whose items write
    depends: dict[str, set[str]] = field(default_factory=dict)  # step → those it depends on
    broken: set[str] = field(default_factory=set)  # steps, and items as `step/index`
    on_failure: str = "fail"
    waits: set[str] = field(default_factory=set)  # steps that wait for the context
    size: int = field(init=False)
    entry: str = ""  # where it is started, if not at its first step
    wanted: str = ""  # the step from which somebody wants it to be redriven, if it ran

    def __post_init__(self) -> None:
        self.dice = Random(f"redrive {self.seed}")
        self.items_dice = Random(f"items {self.seed}")
        self.size = self.dice.choice((3, 5, 7, 9, 12))
        self._block([], 0)
        for name in self.decisions:
            # Whoever decides is shown the context.
            self.depends[name].update(self.writes, self.items_write)
        self._break()
        self.on_failure = self.dice.choice(("fail", "handled", "partial"))
        start = Random(f"start {self.seed}")
        if start.random() < 0.2:
            self.entry = start.choice(list(self.steps))
        if start.random() < 0.2:
            self.wanted = start.choice(list(self.steps))

    @property
    def text(self) -> str:
        root: Fields = {
            "apiVersion": "noetl.io/v2",
            "kind": "Playbook",
            "metadata": {"name": f"redrive-{self.seed}"},
            "executor": {"spec": {"on_failure": self.on_failure, "held": "discard"}},
            "workload": {"base": self.seed},
            "workflow": [{"step": name, **step} for name, step in self.steps.items()],
        }
        return json.dumps(root)

    def script(self, did: list[str], *, mended: bool) -> dict[str, Callable[[Task], Answer]]:
        """The answers; whatever is carried out is noted in `did`."""

        def work(task: Task) -> Answer:
            given = task.inputs.get("params", {})
            name = f"{task.step}/{given['item']}" if task.step in self.loops else task.step
            did.append(name)
            if name in self.broken and not mended:
                return failed("broken", f"{name} fails the first time", retryable=False)
            return succeeded({"v": number_of(name, given)})

        plain = [name for name in self.steps if name not in self.decisions]
        return {f"{name}/t" if name in self.loops else name: work for name in plain}

    def below(self, roots: Iterable[str]) -> set[str]:
        """The steps that depend on these, directly or not, themselves included."""
        found = set(roots)
        while True:
            more = {step for step, on in self.depends.items() if on & found} - found
            if not more:
                return found
            found |= more

    # -- growing -----------------------------------------------------------------------------

    def _chance(self, probability: float) -> bool:
        return self.dice.random() < probability

    def _block(self, before: list[str], depth: int) -> tuple[str, str, list[str]]:
        """Where it begins and ends, and the steps that are over once it is."""
        if depth >= 3 or len(self.steps) >= self.size:
            name = self._step(before)
            return name, name, [*before, name]
        grow = self.dice.choice((self._chain, self._chain, self._fork, self._choice))
        return grow(before, depth)

    def _chain(self, before: list[str], depth: int) -> tuple[str, str, list[str]]:
        first, last, before = self._block(before, depth + 1)
        for _ in range(self.dice.choice((1, 1, 2))):
            head, tail, over = self._block(before, depth + 1)
            self._link(last, [self._arc(head, before)])
            last, before = tail, over
        return first, last, before

    def _fork(self, before: list[str], depth: int) -> tuple[str, str, list[str]]:
        opener = self._step(before)
        blocks = [
            self._block([*before, opener], depth + 1) for _ in range(self.dice.choice((2, 3)))
        ]
        self._link(opener, [{"step": first} for first, _, _ in blocks], "inclusive")
        if self._chance(0.5):
            self._wait([names for _, _, names in blocks], [*before, opener])
        over = [*before, opener, *(name for _, _, each in blocks for name in each)]
        closer = self._step(over)
        self.steps[closer]["spec"] = {**self.steps[closer].get("spec", {}), "join": "all"}
        for _, last, _ in blocks:
            self._link(last, [self._arc(closer, [*before, opener])])
            self.depends[closer].update(each for _, _, names in blocks for each in names)
        return opener, closer, [*over, closer]

    def _wait(self, branches: list[list[str]], before: list[str]) -> None:
        """A step of a later branch waits for what one of an earlier branch writes, and reads it."""
        writers = [name for name in branches[0] if name in self.writes and name not in before]
        waiting = [
            name
            for name in branches[-1]
            if name not in before and name not in self.decisions and name not in self.waits
        ]
        if not writers or not waiting:
            return
        writer, name = self.dice.choice(writers), self.dice.choice(waiting)
        key = self.writes[writer]
        rule = {"when": f"{{{{ ctx.{key} is defined }}}}", "then": {"allow": True}}
        spec = self.steps[name].setdefault("spec", {})
        spec["policy"] = {"admit": {"rules": [rule]}}
        self.steps[name]["tool"][0]["params"]["waited"] = f"{{{{ ctx.{key} }}}}"
        self.depends[name].add(writer)
        self.waits.add(name)

    def _choice(self, before: list[str], depth: int) -> tuple[str, str, list[str]]:
        """One of two ways, by what a step before came to or by how this one ended."""
        opener = self._step(before)
        known = [*before, opener]
        left, right = (self._block(known, depth + 1) for _ in range(2))
        when = _DONE if self._chance(0.5) else self._guard(known)
        self._link(opener, [{"step": left[0], "when": when}, {"step": right[0]}])
        self._guarded(left[0], when, known)
        self._guarded(right[0], when, known)
        over = [*known, *left[2], *right[2]]
        closer = self._step(over)
        for _, last, _ in (left, right):
            self._link(last, [{"step": closer}])
        return opener, closer, [*over, closer]

    def _guard(self, known: list[str]) -> str:
        step = self.dice.choice(known)
        key = self.writes.get(step)
        read = f"ctx.{key}" if key and self._chance(0.5) else f"steps.{step}"
        return f"{{{{ ({read} | default({{'v': 1}})).v | default(1) % 2 == 0 }}}}"

    def _guarded(self, target: str, when: str, known: list[str]) -> None:
        """A guard that reads a step makes those it lets through depend on that step."""
        for step in known:
            if f"steps.{step} " in when or f"ctx.{self.writes.get(step)} " in when:
                self.depends[target].add(step)

    def _link(self, source: str, arcs: list[Fields], mode: str = "exclusive") -> None:
        self.steps[source]["next"] = {"spec": {"mode": mode}, "arcs": arcs}
        for arc in arcs:
            self.depends[arc["step"]].add(source)

    def _arc(self, target: str, known: list[str]) -> Fields:
        arc: Fields = {"step": target}
        if self._chance(0.25):
            arc["when"] = _DONE
        if known and self._chance(0.3):
            read = self.dice.choice(known)
            arc["args"] = {"n": f"{{{{ steps.{read} | default('none') }}}}"}
            self.depends[target].add(read)
        return arc

    # -- steps -------------------------------------------------------------------------------

    def _step(self, before: list[str]) -> str:
        name = f"s{len(self.steps) + 1}"
        self.depends[name] = set()
        step: Fields = {}
        self.steps[name] = step
        if before and self._chance(0.12):
            step["tool"] = {"kind": "decision", "ask": "Go on?"}
            self.decisions.add(name)
            return name
        params = self._params(name, before)
        if self._chance(0.2):
            self.loops[name] = self.dice.choice((1, 3, 6))
            step["loop"] = {"in": {"range": self.loops[name]}, "iterator": "x"}
            step["spec"] = {"fanout": {"fail_fast": False, "allow_partial": self._chance(0.6)}}
            if self._chance(0.5):
                step["spec"]["fanout"]["shard_size"] = 2
            params["item"] = "{{ iter.x }}"
        task: Fields = {"name": "t", "kind": "http", "url": "https://example.org"}
        step["tool"] = [{**task, "params": params}]
        if name in self.loops and self.items_dice.random() < 0.6:
            step["spec"]["fanout"]["reducers"] = {f"shared_{name}": "append"}
            step["tool"][0] |= self._writes_of_items(name)
            self.items_write.add(name)
        if self._chance(0.5):
            self.writes[name] = f"k{name}"
            step["set_ctx"] = {f"k{name}": f"{{{{ steps.{name} }}}}"}
        return name

    def _writes_of_items(self, name: str) -> Fields:
        """Writes of which the last counts, or their order does."""
        item = "{{ iter.x }}"
        appended = {"reduce": "append", "value": item}
        ways: tuple[Fields, ...] = (
            {"set_ctx": {f"last_{name}": item, f"seen_{name}": appended}},
            {"set_shared": {f"shared_{name}": item}},
            {"set_ctx": {f"last_{name}": item}, "set_shared": {f"shared_{name}": item}},
        )
        return self.items_dice.choice(ways)

    def _params(self, name: str, before: list[str]) -> Fields:
        params: Fields = {"base": "{{ workload.base }}", "n": "{{ args.n | default('none') }}"}
        for number in range(self.dice.choice((0, 1, 1, 2)) if before else 0):
            read = self.dice.choice(before)
            key = self.writes.get(read)
            path = f"ctx.{key}" if key and self._chance(0.6) else f"steps.{read}"
            params[f"r{number}"] = f"{{{{ {path} | default('none') }}}}"
            self.depends[name].add(read)
        return params

    def _break(self) -> None:
        works = [name for name in self.steps if name not in self.decisions]
        for name in self.dice.sample(works, min(len(works), self.dice.choice((1, 1, 2)))):
            items = self.loops.get(name)
            if items is None:
                self.broken.add(name)
            else:
                some = self.dice.sample(range(items), self.dice.randint(1, items))
                self.broken.update(f"{name}/{item}" for item in some)


def number_of(name: str, given: Mapping[str, Any]) -> int:
    """What a step comes to: a function of its name and of what it was given."""
    said = json.dumps([name, given], sort_keys=True, default=str)
    return int(hashlib.sha256(said.encode()).hexdigest()[:8], 16) % _NUMBER
