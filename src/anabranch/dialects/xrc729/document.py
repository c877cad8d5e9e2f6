"""An orchestration as its author wrote it, spellings made one and defaults filled in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from anabranch.net.problems import Position

Mode = Literal["any", "all", "kofn"]
Policy = Literal["kill", "drain"]
When = Literal["valid", "invalid", "any"]
Outcome = Literal["valid", "invalid"]


class From(msgspec.Struct, frozen=True):
    """One producer of a join: a step, and the outcome with which it counts."""

    node: str
    when: When
    position: Position


class JoinDeclaration(msgspec.Struct, frozen=True):
    target: str
    mode: Mode
    k: int  # how many producers close it, whatever the mode
    policy: Policy
    producers: tuple[From, ...]
    position: Position


class Spawn(msgspec.Struct, frozen=True):
    step: str
    position: Position


class BranchActions(msgspec.Struct, frozen=True):
    """What follows one outcome of a step."""

    outcome: Outcome
    spawns: tuple[Spawn, ...] = ()
    join: JoinDeclaration | None = None


class StepDeclaration(msgspec.Struct, frozen=True):
    name: str
    rule: str  # an address or an alias, as written
    rule_position: Position
    branches: tuple[BranchActions, ...]
    position: Position


class Orchestration(msgspec.Struct, frozen=True):
    id: str
    steps: Mapping[str, StepDeclaration]
    position: Position
