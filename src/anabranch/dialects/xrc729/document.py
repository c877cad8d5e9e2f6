"""An orchestration as its author wrote it, spellings made one and defaults filled in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from anabranch.net.problems import Position

Mode = Literal["any", "all", "kofn"]
Policy = Literal["kill", "drain"]
When = Literal["valid", "invalid", "any"]
Outcome = Literal["valid", "invalid"]


@dataclass(frozen=True, slots=True)
class From:
    """One producer of a join: a step, and the outcome with which it counts."""

    node: str
    when: When
    position: Position


@dataclass(frozen=True, slots=True)
class JoinDeclaration:
    target: str
    mode: Mode
    k: int  # how many producers close it, whatever the mode
    policy: Policy
    producers: tuple[From, ...]
    position: Position


@dataclass(frozen=True, slots=True)
class Spawn:
    step: str
    position: Position


@dataclass(frozen=True, slots=True)
class BranchActions:
    """What follows one outcome of a step."""

    outcome: Outcome
    spawns: tuple[Spawn, ...] = ()
    join: JoinDeclaration | None = None


@dataclass(frozen=True, slots=True)
class StepDeclaration:
    name: str
    rule: str  # an address or an alias, as written
    rule_position: Position
    branches: tuple[BranchActions, ...]
    position: Position


@dataclass(frozen=True, slots=True)
class Orchestration:
    id: str
    steps: Mapping[str, StepDeclaration]
    position: Position
