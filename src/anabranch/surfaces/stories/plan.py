"""Which nodes a story has, and what each of them offers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

DEFINITIONS = Path(__file__).parent / "definitions"
CAPABILITY = "offer-catalog"
CURRENCY = "ORC"
ROLE = "role"  # the module that does the work of a node
ROLE_HEADER = "X-Role-Auth"
ROLES = "anabranch.surfaces.stories.roles"
WORK_SECONDS = 3_600


class Offering(msgspec.Struct, frozen=True, kw_only=True):
    service_type: str
    amount: int = 0  # minor units
    confirmation: str | None = None  # who accepts; None for work that costs nothing
    seconds: int = WORK_SECONDS  # within which it is done
    depth: int = 100  # of its queue

    def config(self, node: str) -> dict[str, Any]:
        """As Dator reads it."""
        return {
            "offer_id": self.offer_id(node),
            "service_type": self.service_type,
            "service_description": f"{self.service_type} by {node}",
            "pricing_amount": self.amount,
            "pricing_currency": CURRENCY,
            "delivery_max_duration_sec": self.seconds,
            "queue_max_depth": self.depth,
            "confirmation_mode": self.confirmation,
            "dispatch": {"kind": "role-module", "capability_id": ROLE},
        }

    def offer_id(self, node: str) -> str:
        return f"offer:{node}-{self.service_type.replace('/', '-')}"


class NodePlan(msgspec.Struct, frozen=True, kw_only=True):
    """A node with offers has Dator and a role; every node of a story has Arca."""

    name: str
    offers: tuple[Offering, ...] = ()
    role: str = "work"  # a function of `roles`
    passports: tuple[str, ...] = ()

    @property
    def modules(self) -> tuple[str, ...]:
        return ("arca", "dator", ROLE) if self.offers else ("arca",)

    def dator(self, role: Mapping[str, Any]) -> dict[str, Any]:
        """The section `dator` of its configuration; `role` says where the role listens."""
        return {
            "offers": [one.config(self.name) for one in self.offers],
            "roles": {ROLE: {"timeout_sec": 86_400, "max_concurrent": 1_000, **role}},
        }


def definition(name: str) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode((DEFINITIONS / f"{name}.json").read_bytes())
    return found
