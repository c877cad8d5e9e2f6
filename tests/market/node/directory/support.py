"""Nodes with a directory, and documents of nodes that are keys alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anabranch.market.node.api import OPEN, Answer
from anabranch.market.node.directory import part as directory
from anabranch.market.node.node import MakePart
from anabranch.market.node.peers import part as peers
from anabranch.market.node.peers.memory_transport import MemoryNetwork
from anabranch.market.passports import NOT_SIGNED, passport_draft, revocation_draft
from anabranch.work.participants.performers import rfc3339
from market.node.peers.support import Host, KeySigner
from market.support import NOW

PARTS: tuple[MakePart, ...] = (
    (directory.make, directory.FAMILIES),
    (peers.make, peers.FAMILIES),
)
CAPABILITY = "offer-catalog"
HOUR = 3_600_000
DAY = 24 * HOUR


def host(network: MemoryNetwork, number: int = 1, /, **more: Any) -> Host:
    """A node; its section `directory` can be given as `directory`."""
    raw = {"directory": more.pop("directory", {}), "peers": more.pop("peers", {})}
    return Host(network, number, raw=raw, parts=PARTS, **more)


def part_of(one: Host) -> directory.DirectoryPart:
    found = one.node.parts[0]
    assert isinstance(found, directory.DirectoryPart)
    return found


def passport_of(
    node: KeySigner, issuer: KeySigner | None = None, *, capability: str = CAPABILITY,
    issued: int = NOW, life: int | None = DAY, **changes: Any,
) -> dict[str, Any]:  # fmt: skip
    issuer = issuer or node
    draft = passport_draft(
        issuer.participant_id, issuer.node_id, node.node_id, capability,
        issued_at=rfc3339(issued), expires_at=None if life is None else rfc3339(issued + life),
    )  # fmt: skip
    return issuer.sign_as_participant({**draft, **changes}, NOT_SIGNED)


def advertisement_of(
    node: KeySigner, *passports: dict[str, Any], at: int = NOW, url: str = "", **changes: Any
) -> dict[str, Any]:
    endpoint = {
        "endpoint/url": url, "endpoint/transport": "http", "endpoint/role": "peer",
        "endpoint/priority": 0,
    }  # fmt: skip
    presented = [
        {
            "capability/id": one["capability_id"], "wire/name": "role/x",
            "assertion/kind": "capability-passport", "passport": one,
        }
        for one in passports
    ]  # fmt: skip
    draft = {
        "schema/v": 1, "advertisement/id": f"advertisement:{at}", "node/id": node.node_id,
        "published-at": rfc3339(at), "protocol/version": "1.0", "transport/profiles": ["wss"],
        "capabilities/core": ["core/messaging"], "capabilities/presented": presented,
        "messages/supported": [], "endpoints": [endpoint] if url else [],
    }  # fmt: skip
    return node.sign_as_node({**draft, **changes})


def revocation_of(
    passport: dict[str, Any], signer: KeySigner, *, by_issuer: bool = True, **changes: Any
) -> dict[str, Any]:
    draft = revocation_draft(passport, by_issuer=by_issuer, revoked_at=rfc3339(NOW))
    draft = {**draft, **changes}
    return signer.sign_as_participant(draft) if by_issuer else signer.sign_as_node(draft)


async def advertise(
    at: Host, advertisement: dict[str, Any], sequence: Any = 1, node: str = "", remote: str = ""
) -> Answer:
    body = {"advertisement": advertisement, "sequence/no": sequence}
    path = f"/adv/{node or advertisement['node/id']}"
    return await at.call("PUT", path, body, caller=OPEN, remote=remote)


async def register(
    at: Host, passport: dict[str, Any], node: KeySigner, sequence: Any = 1, *,
    advertisement: dict[str, Any] | None = None, path: Sequence[str] = (), **more: Any,
) -> Answer:  # fmt: skip
    body = {
        "advertisement": advertisement or advertisement_of(node, passport),
        "sequence/no": sequence,
        "passport": passport,
        **more,
    }
    node_id, capability = path or (node.node_id, passport["capability_id"])
    return await at.call("PUT", f"/cap/{node_id}/{capability}", body, caller=OPEN)


async def revoke(at: Host, revocation: dict[str, Any]) -> Answer:
    return await at.call("POST", "/revoke", revocation, caller=OPEN)


async def read(at: Host, path: str) -> Answer:
    return await at.call("GET", path, caller=OPEN)


def holders(at: Host, capability: str = CAPABILITY) -> list[str]:
    return sorted(row["node_id"] for row in at.context.directory.holders(capability))
