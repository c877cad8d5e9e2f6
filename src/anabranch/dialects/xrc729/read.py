"""From the JSON of an orchestration to its declarations, with everything that is wrong.

All spellings that circulate are read: `mode` as a word with `k` beside it, or as `{"kofn": 2}`; the
defaults that deploy tools strip (`mode: any`, `waitonjoin: drain`, `when: any`) may be missing.
Whatever is refused here is refused before any state of a session exists.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Final

from anabranch.dialects.findings import Findings, Section
from anabranch.dialects.nodes import Fields, Node, Scalar, kind_of
from anabranch.dialects.xrc729.document import (
    BranchActions,
    From,
    JoinDeclaration,
    Mode,
    Orchestration,
    Outcome,
    Policy,
    Spawn,
    StepDeclaration,
    When,
)
from anabranch.net.problems import Position, did_you_mean

BYTES_MAX: Final = 262_144
STEPS_MAX: Final = 128
SPAWNS_MAX: Final = 32
PRODUCERS_MAX: Final = 32

STEP_ID = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
MODES: tuple[Mode, ...] = ("any", "all", "kofn")
POLICIES: tuple[Policy, ...] = ("drain", "kill")
WHENS: dict[str, When] = {
    "valid": "valid",
    "invalid": "invalid",
    "any": "any",
    "both": "any",
    "": "any",
}
BRANCHES: tuple[tuple[str, Outcome], ...] = (("onValid", "valid"), ("onInvalid", "invalid"))
#: What deploy tools put beside a document; it means nothing to a run.
METADATA = ("bundleId", "meta", "name", "address", "contractId")
#: Keys of the first drafts of the language, and what to write today.
FIRST_DRAFT = {
    "spawn": "write `spawns` with a list of step ids",
    "continue": "list the step under `spawns`: every step is a process of its own",
    "label": "remove it",
}


class OrchestrationReader:
    """Reads one document; what is wrong goes to `findings`."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._known: tuple[str, ...] = ()

    def read(self, node: Fields, fallback: str) -> Orchestration | None:
        root = Section(node, "the orchestration", self._findings)
        name = self._name(root, fallback)
        structure = self._structure(root)
        root.finish(METADATA, free=())
        if structure is None:
            return None
        self._known = tuple(structure.node.fields)
        steps = {}
        for step_id, step_node in structure.node.fields.items():
            self._check_id(step_id, structure.key_position(step_id))
            step = self._step(step_id, step_node, structure.key_position(step_id))
            if step is not None:
                steps[step_id] = step
        if len(steps) < len(self._known):
            return None  # others may lead to a step that cannot be read
        return Orchestration(name, steps, node.position)

    def _name(self, root: Section, fallback: str) -> str:
        node = root.ask("id")
        if node is None:
            hint = f'add `"id"`; until then it is called {fallback!r}'
            self._findings.warn(root.position, "no-name", "the orchestration has no `id`", hint)
            return fallback
        return self._string(node, "`id` of the orchestration") or fallback

    def _structure(self, root: Section) -> Section | None:
        structure = root.section("structure")
        if structure is None:
            root.require("structure", 'add `"structure"` with the steps by id')
            return None
        steps = structure.node.fields
        if not steps:
            hint = 'write a step, such as `"A1": {"rule": "0x…"}`'
            self._findings.add(structure.position, "no-steps", "there are no steps", hint)
            return None
        if len(steps) > STEPS_MAX:
            self._too_many(structure.position, "the structure", "steps", len(steps), STEPS_MAX)
        return structure

    # -- steps -------------------------------------------------------------------------------

    def _check_id(self, step_id: str, at: Position) -> None:
        if not STEP_ID.fullmatch(step_id):
            message = f"the step id {step_id!r} cannot be used"
            hint = "start with a letter; letters, digits, `_` and `-` may follow, 64 in all"
            self._findings.add(at, "bad-name", message, hint)

    def _step(self, step_id: str, node: Node, at: Position) -> StepDeclaration | None:
        section = self._findings.section(node, f"step {step_id!r}")
        if section is None:
            return None
        rule, rule_at = self._rule(section)
        branches = []
        for key, outcome in BRANCHES:
            branch = section.section(key)
            if branch is not None:
                branches.append(self._branch(step_id, branch, key, outcome))
        self._old_keys(section)
        section.finish(("id",))
        return StepDeclaration(step_id, rule, rule_at, tuple(branches), at)

    def _rule(self, section: Section) -> tuple[str, Position]:
        node = section.ask("rule")
        if node is None:
            section.require("rule", "name the rule: `0x` and 40 hex digits, or an alias")
            return "", section.position
        text = self._string(node, f"`rule` of {section.what}")
        if text is not None and not text.strip():
            section.missing("rule", "name the rule: `0x` and 40 hex digits, or an alias")
        return text or "", node.position

    def _branch(self, step_id: str, section: Section, key: str, outcome: Outcome) -> BranchActions:
        section.what = f"`{key}` of step {step_id!r}"
        spawns = self._spawns(section, step_id)
        declared = section.section("join")
        join = None if declared is None else self._join(declared, step_id)
        self._old_keys(section)
        section.finish()
        if join is not None and join.target in [spawn.step for spawn in spawns]:
            message = f"{join.target!r} is spawned here and is also the target of the join"
            hint = "the spawned one is an ordinary process; remove it from `spawns`"
            self._findings.warn(join.position, "join-target-spawned", message, hint)
        return BranchActions(outcome, spawns, join)

    def _spawns(self, section: Section, step_id: str) -> tuple[Spawn, ...]:
        items = section.items("spawns")
        if items is None:
            return ()
        if len(items.items) > SPAWNS_MAX:
            self._too_many(items.position, section.what, "spawns", len(items.items), SPAWNS_MAX)
        found = []
        for item in items:
            target = self._step_named(item, f"`spawns` of {section.what}")
            if target is not None:
                found.append(Spawn(target, item.position))
            if target == step_id:
                message = f"step {step_id!r} spawns itself: only a rule, a kill or gas ends that"
                hint = "let a rule of the loop become invalid at some point, or limit the gas"
                self._findings.add(item.position, "self-spawn", message, hint, "note")
        return tuple(found)

    # -- joins -------------------------------------------------------------------------------

    def _join(self, section: Section, step_id: str) -> JoinDeclaration | None:
        section.what = f"the join of step {step_id!r}"
        target_node = section.needed("joinid", "name the step that waits for the producers")
        target = None
        if target_node is not None:
            target = self._step_named(target_node, f"`joinid` of {section.what}")
        producers = self._producers(section)
        mode, k = self._mode(section, len(producers))
        policy = section.choice("waitonjoin", POLICIES, "drain")
        self._old_keys(section)
        section.finish()
        if target is None or not producers:
            return None
        return JoinDeclaration(target, mode, k, policy, producers, section.position)

    def _producers(self, section: Section) -> tuple[From, ...]:
        items = section.items("from")
        if items is None:
            section.require("from", 'list the producers: `[{"node": "G1", "when": "valid"}]`')
            return ()
        if not items.items:
            message = f"`from` of {section.what} is empty"
            hint = 'list the producers: `[{"node": "G1", "when": "valid"}]`'
            self._findings.add(items.position, "empty-list", message, hint)
        if len(items.items) > PRODUCERS_MAX:
            number = len(items.items)
            self._too_many(items.position, section.what, "`from` entries", number, PRODUCERS_MAX)
        read = (self._producer(item, section.what) for item in items)
        found = [producer for producer in read if producer is not None]
        self._note_twins(found, section.what)
        return tuple(found)

    def _producer(self, node: Node, what: str) -> From | None:
        section = self._findings.section(node, f"an entry of `from` of {what}")
        if section is None:
            return None
        named = section.needed("node", "name the step that may deliver")
        step = None
        if named is not None:
            step = self._step_named(named, f"`node` of {section.what}")
        when = self._when(section)
        section.finish()
        return None if step is None else From(step, when, section.position)

    def _when(self, section: Section) -> When:
        node = section.ask("when")
        if node is None:
            return "any"
        if isinstance(node, Scalar) and node.value in WHENS:
            return WHENS[str(node.value)]
        message = f"`when` of {section.what} is {kind_of(node)}"
        self._findings.add(node.position, "bad-choice", message, "choose valid, invalid or any")
        return "any"

    def _note_twins(self, producers: Iterable[From], what: str) -> None:
        seen: set[tuple[str, str]] = set()
        for one in producers:
            if (one.node, one.when) in seen:
                message = f"{one.node!r} ({one.when}) stands in `from` of {what} more than once"
                hint = "each entry takes a process of its own; remove it unless that is meant"
                self._findings.warn(one.position, "duplicate-slot", message, hint)
            seen.add((one.node, one.when))

    def _mode(self, section: Section, producers: int) -> tuple[Mode, int]:
        node, k_node = section.ask("mode"), section.ask("k")
        if isinstance(node, Fields):
            return "kofn", self._k_inside(node, k_node, section, producers)
        mode: Mode = section.choice("mode", MODES, "any")
        if mode == "kofn":
            if k_node is None:
                at = node.position if node is not None else section.position
                message = f"{section.what} has the mode kofn and no `k`"
                hint = f'add `"k"`: a number from 1 to {max(producers, 1)}'
                self._findings.add(at, "missing-key", message, hint)
            return mode, self._k(k_node, section, producers)
        if k_node is not None:
            self._idle_k(k_node, section, mode if node is not None else None)
        return mode, producers if mode == "all" else 1

    def _idle_k(self, node: Node, section: Section, mode: Mode | None) -> None:
        if mode is None:
            message = f"{section.what} has `k` and no `mode`, which would mean any"
            hint = 'write `"mode": "kofn"`, or remove `k`'
            self._findings.add(node.position, "conflicting-keys", message, hint)
        else:
            message = f"`k` of {section.what} has no effect: its mode is {mode}"
            hint = 'remove it, or write `"mode": "kofn"`'
            self._findings.warn(node.position, "ignored-key", message, hint)

    def _k_inside(self, node: Fields, beside: Node | None, section: Section, most: int) -> int:
        """`{"kofn": 2}` and `{"k": 2}`, as builders write it."""
        inner = Section(node, f"`mode` of {section.what}", self._findings)
        given = [found for key in ("kofn", "k") if (found := inner.ask(key)) is not None]
        inner.finish()
        if len(given) + (beside is not None) > 1:
            message = f"{section.what} says twice how many producers it needs"
            hint = 'write `"mode": "kofn"` and `"k"`'
            self._findings.add(node.position, "conflicting-keys", message, hint)
        if not given and beside is None:
            inner.missing("kofn", 'write `{"kofn": 2}`, or `"mode": "kofn"` with `"k"`')
        return self._k(next(iter(given), beside), section, most)

    def _k(self, node: Node | None, section: Section, most: int) -> int:
        if node is None:
            return 1
        if not isinstance(node, Scalar) or type(node.value) is not int:
            self._findings.wrong_type(node, f"`k` of {section.what}", "a whole number")
            return 1
        if not 1 <= node.value <= most and most:
            message = f"`k` of {section.what} is {node.value}, and it has {most} producers"
            hint = f"write a number from 1 to {most}"
            self._findings.add(node.position, "bad-number", message, hint)
            return 1
        return node.value

    # -- words -------------------------------------------------------------------------------

    def _string(self, node: Node, what: str) -> str | None:
        if isinstance(node, Scalar) and isinstance(node.value, str):
            return node.value
        self._findings.wrong_type(node, what, "text")
        return None

    def _step_named(self, node: Node, what: str) -> str | None:
        name = self._string(node, what)
        if name is None or name in self._known:
            return name
        message = f"{what} names the step {name!r}, which does not exist"
        hint = did_you_mean(name, self._known) or "name a step of `structure`"
        self._findings.add(node.position, "unknown-step", message, hint)
        return None

    def _old_keys(self, section: Section) -> None:
        for key, hint in FIRST_DRAFT.items():
            if key in section.node:
                section.ask(key)
                message = f"`{key}` of {section.what} is no part of the language (any more)"
                section.report(key, "unknown-key", message, hint)

    def _too_many(self, at: Position, what: str, things: str, number: int, most: int) -> None:
        message = f"{what} has {number} {things}; at most {most} are allowed"
        self._findings.add(at, "too-many", message, "split the orchestration")


def check_is_json(text: str, at: Position, findings: Findings) -> None:
    """Other definitions may be YAML; a contract keeps JSON, and so does an orchestration."""
    try:
        json.loads(text.removeprefix("\ufeff"))
    except ValueError:
        message = "an orchestration is JSON, and this is something else"
        findings.add(at, "syntax", message, "write it as JSON, keys and texts in double quotes")
