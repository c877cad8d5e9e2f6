"""The kind `targets`: whom a step asks, found in what the host and the catalog know.

A search for passports asks no other node. Where no offer is known for a service, other catalogs are
asked for theirs, and the search looks again. Where the host cannot say who is there, the search
fails and is tried again; nobody is taken for nobody only where that is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from anabranch.errors import InputError
from anabranch.expressions.pointer import MISSING, parse_path, same
from anabranch.kernel.values import Answer
from anabranch.market.directory import LEAST_RECENTLY_ASKED
from anabranch.modules.arca.work.nodes import ParticipantNodes
from anabranch.modules.arca.work.ports import Offers
from anabranch.modules.kit.host import Host, HostRefused, HostUnavailable
from anabranch.work.faults import fault
from anabranch.work.participants.port import ParticipantQuery
from anabranch.work.participants.rotation import Rotation
from anabranch.work.port import InlineAnswer, Task

_SERVICE = ("service_type", "service/type")
_PROVIDER = "provider/participant-id"


class TargetSearch:
    def __init__(
        self,
        host: Host,
        offers: Offers,
        nodes: ParticipantNodes,
        rotation: Rotation | None = None,
    ) -> None:
        self._nodes = nodes
        self._host = host
        self._offers = offers
        self.rotation = rotation or Rotation()

    async def perform(self, task: Task) -> Answer:
        try:
            query = msgspec.convert(dict(task.inputs), ParticipantQuery)
            found, why = await self._found(query, task.inputs.get("offer"))
        except msgspec.ValidationError as error:
            return fault("config", f"the target of step {task.step}: {error}")
        except InputError as error:
            return fault("config", f"the target of step {task.step}: {error.message}")
        except HostUnavailable as error:
            return fault("directory", error.message, code=error.code)
        except HostRefused as error:
            return fault("directory", error.message, code=error.code, retryable=False)
        result: dict[str, Any] = {"targets": self._chosen(query, found)}
        if not result["targets"]:
            result["why"] = why
        # Whole, however many there are: the fan cannot look behind a ref.
        return InlineAnswer(status="ok", result=result)

    async def _found(self, query: ParticipantQuery, offer: Any) -> tuple[list[str], str]:
        """All of them in their order, and why there is nobody where that is so."""
        match query.resolve:
            case "static":
                return list(dict.fromkeys(query.participants)), "no participant is named"
            case "capability":
                return await self._holders(query)
            case "task_type" | "service_type":
                found, why = self._offering(query)
                if not found:
                    await self._offers.refresh()
                    found, why = self._offering(query)
                return found, why
            case "offer":
                return _provider_of(offer), "the offer names no provider"
            case other:
                raise InputError(f"targets cannot be resolved by {other!r}")

    def _chosen(self, query: ParticipantQuery, found: list[str]) -> list[str]:
        most = 1 if query.one else query.limit
        if query.order == LEAST_RECENTLY_ASKED:
            return self.rotation.chosen(found, most)
        if query.one and query.resolve == "capability":
            found = self._cheapest(found, query)
        return found[:most]

    # -- by passports ------------------------------------------------------------------------

    async def _holders(self, query: ParticipantQuery) -> tuple[list[str], str]:
        """Participants of nodes with a passport that counts, each once, those of trusted nodes
        first: others can be as many as they like, and stay in the order of the host, which they
        cannot choose. The host says who that is: the operator of the node by a verified binding, or
        else the issuer."""
        rows = await self._host.holders(query.capability_id)
        self._nodes.saw(rows)
        fitting = [row for row in rows if self._fits(row, query)]
        found = dict.fromkeys(str(row["anchor_identity"]) for row in fitting)
        trusted = {str(row["anchor_identity"]) for row in fitting if row.get("trusted") is True}
        wanted = query.capability_id
        if not rows:
            return [], f"no valid passport for {wanted!r} is known to this node"
        valid = f"{len(rows)} valid {'passport' if len(rows) == 1 else 'passports'}"
        ordered = sorted(found, key=lambda name: name not in trusted)
        return ordered, f"{valid} for {wanted!r}, and the filter {query.filter} fits none"

    def _fits(self, row: Mapping[str, Any], query: ParticipantQuery) -> bool:
        """Keys of the filter against the row; services against the offers that are known here. A
        provider without any stays in: it will say what it has."""
        entry = {**row, "scope": row["passport"].get("scope")}
        return all(
            self._may_offer(str(row["anchor_identity"]), wanted)
            if key in _SERVICE
            else matches(entry, key, wanted)
            for key, wanted in (query.filter or {}).items()
        )

    def _may_offer(self, provider: str, service_type: Any) -> bool:
        known = self._offers.offers(service_type="", provider=provider)
        return not known or any(same(one["service/type"], service_type) for one in known)

    def _cheapest(self, found: list[str], query: ParticipantQuery) -> list[str]:
        """By the price of their offers for the service; who has none comes last."""
        offers = self._offers.offers(service_type=query.service_type)
        ranks: dict[str, int] = {}
        for number, one in enumerate(offers):
            ranks.setdefault(str(one[_PROVIDER]), number)
        return sorted(found, key=lambda name: ranks.get(name, len(offers)))

    # -- by offers ---------------------------------------------------------------------------

    def _offering(self, query: ParticipantQuery) -> tuple[list[str], str]:
        """Providers of active offers, the one with the cheapest offer first."""
        wanted = query.service_type or query.task_type
        offers = self._offers.offers(service_type=wanted, filter=query.filter)
        found = list(dict.fromkeys(str(one[_PROVIDER]) for one in offers))
        if found or not query.filter:
            return found, f"no active offer for {wanted!r} is known to this node"
        known = len(self._offers.offers(service_type=wanted))
        return [], f"{known} active offers for {wanted!r}, and the filter {query.filter} fits none"


def matches(entry: Mapping[str, Any], key: str, wanted: Any) -> bool:
    """Whether there is that value at a path, which may be dotted."""
    found = parse_path(key).find(entry)
    return found is not MISSING and same(found, wanted)


def _provider_of(offer: Any) -> list[str]:
    provider = offer.get(_PROVIDER) if isinstance(offer, Mapping) else None
    return [provider] if isinstance(provider, str) and provider else []
