"""`offers put|list|show|trust|sync`: the catalog of a buyer, in its file."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from anabranch import files
from anabranch.errors import InputError, NotFound
from anabranch.market import OfferCatalog
from anabranch.market.catalog.admission import Admission
from anabranch.market.catalog.facts import Counts
from anabranch.market.catalog.listing import CatalogFilter
from anabranch.market.catalog.messages import relays_in
from anabranch.market.catalog.relays import relay_of
from anabranch.market.documents import check
from anabranch.market.documents.checking import read_document
from anabranch.market.documents.limits import TEXT_MAX
from anabranch.market.documents.problems import Found
from anabranch.market.node.folder import NodeFolder
from anabranch.settings import Settings
from anabranch.surfaces.cli.output import render

HOME = ("middleware", "arca", "offers.db")
MANY_ROWS = 100_000  # of a file that no node says anything about


async def offers(options: argparse.Namespace, settings: Settings) -> int:
    if options.action == "sync":
        return await _sync(options)
    return ACTIONS[options.action](options)


@contextmanager
def _opened(options: argparse.Namespace, *, new: bool) -> Iterator[OfferCatalog]:
    """The catalog that is meant; a `new` one is made where there is none."""
    if options.catalog_file is not None:
        path, node_id, rows = Path(options.catalog_file), "", MANY_ROWS
    else:
        path, node_id, rows = _of_node(options)
    if not path.exists():
        if not new:
            raise InputError(
                f"there is no catalog at {path}: `anabranch offers put` and Arca make one",
                code="no_catalog",
            )
        if options.catalog_file is None:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    catalog = OfferCatalog(path, node_id=node_id, max_rows=rows)
    try:
        yield catalog
    finally:
        catalog.close()


def _of_node(options: argparse.Namespace) -> tuple[Path, str, int]:
    """The file of the node's Arca, whose catalog it is, and how many rows that keeps."""
    from anabranch.market.node.keys import KeyFolder
    from anabranch.market.node.modules.layers import read_layers
    from anabranch.modules.arca.config import arca_config

    folder = _folder(options)
    folder.read()
    node_id = KeyFolder.open(folder.keys).key("node").identity("node")
    config = arca_config(read_layers([folder.path / "config"]))
    return folder.path.joinpath(*HOME), node_id, config.catalog_max_rows


def _folder(options: argparse.Namespace) -> NodeFolder:
    return NodeFolder(options.node or os.environ.get("ANABRANCH_NODE") or ".")


# -- put -------------------------------------------------------------------------------------


def _put(options: argparse.Namespace) -> int:
    found = [one for file in options.files for one in _documents(file)]  # before anything changes
    with _opened(options, new=True) as catalog:
        results = [_admitted(catalog, one, options.source) for one in found]
    counts = Counts.of(results).shown()
    rows = [(one.status, one.offer_id or "-", one.reason, one.message) for one in results]
    lines = render.table(rows, ("STATUS", "OFFER", "REASON", ""))
    if any(one.reason == "untrusted" for one in results):
        lines = [*lines, "offers of providers that are not trusted are hidden for an hour, then "
                 "gone: see `anabranch offers trust`"]  # fmt: skip
    facts = {"counts": counts, "results": msgspec.to_builtins(results)}
    render.tell(options, facts, render.clean("\n".join(lines)) if results else "no offers")
    return 1 if counts["rejected"] else 0


def _documents(file: str) -> list[Any]:
    """The relays and offers in a file."""
    if file == "-":
        data = sys.stdin.buffer.read(TEXT_MAX + 1)
    else:
        data = files.read_limited(file, TEXT_MAX)
    found = Found()
    value = read_document(data, found, file)
    if len(found):
        raise InputError(f"{file}: {found.problems()[0]}", code="bad_file")
    values = value if isinstance(value, list) else [value]
    return [one for each in values for one in _relays(each)]


def _relays(value: Any) -> list[Any]:
    if isinstance(value, dict) and ("offers" in value or "relay" in value):
        return relays_in(value)
    return [value]


def _admitted(catalog: OfferCatalog, document: Any, source: str | None) -> Admission:
    relay = document
    if isinstance(document, dict) and "offer/id" in document:  # an offer alone
        problems = check(document, kind="service-offer.v1")
        if problems:
            name = str(document["offer/id"])[:200]
            code, said = problems[0].code, str(problems[0])
            return Admission(status="rejected", reason=code, message=said, offer_id=name)
        relay = relay_of(document, document["provider/node-id"], catalog.clock.now())
    origin = relay.get("relay/origin-node-id") if isinstance(relay, dict) else None
    return catalog.admit(relay, source_node=source or str(origin or ""))


# -- list and show ---------------------------------------------------------------------------


def _list(options: argparse.Namespace) -> int:
    fields = {
        "service/type": options.service_type,
        "provider/participant-id": options.provider,
        "provider/node-id": options.provider_node,
    }
    wanted = CatalogFilter(
        fields={key: msgspec.json.encode(value) for key, value in fields.items() if value},
        active_only=not options.all,
        limit=options.limit,
    )
    with _opened(options, new=False) as catalog:
        found, counts = catalog.rows(wanted, hidden=options.hidden), catalog.counts()
    if options.json:
        return render.tell(options, {"items": found, "counts": counts}, "")
    of_node = options.catalog_file is None and not counts["hidden"]
    none = [
        "no offers; `anabranch offers sync` asks other catalogs now" if of_node else "no offers"
    ]
    lines = render.table([_row(one) for one in found], _HEAD) if found else none
    if counts["hidden"] and not options.hidden:
        lines = [*lines, f"{counts['hidden']:,} of providers that are not trusted: --hidden"]
    return render.tell(options, found, render.clean("\n".join(lines)))


_HEAD = ("OFFER", "SEQ", "SERVICE", "PRICE", "TRUST", "EXPIRES")


def _row(row: dict[str, Any]) -> tuple[str, ...]:
    offer = row["offer"]
    price = f"{offer['pricing/amount']} {offer['pricing/currency']} {offer['pricing/unit']}"
    ended = " (withdrawn)" if offer.get("offer/status") == "withdrawn" else ""
    return (
        offer["offer/id"],
        str(offer["sequence/no"]),
        offer["service/type"],
        price,
        row["trust_level"],
        offer["expires-at"] + ended,
    )


def _show(options: argparse.Namespace) -> int:
    with _opened(options, new=False) as catalog:
        found = catalog.row(options.offer, hidden=options.hidden)
    if found is None:
        said = f"no offer {options.offer[:200]!r} can be seen in this catalog"
        raise NotFound(said, code="offer-not-found")
    return render.tell(options, found, render.json_text(found))


# -- trust -----------------------------------------------------------------------------------


def _trust(options: argparse.Namespace) -> int:
    name = options.participant
    if name is None:
        if options.remove:
            raise InputError("name the participant who is trusted no more", code="usage")
        return _trusted(options)
    with _opened(options, new=not options.remove) as catalog:
        if options.remove:
            catalog.facts.distrust(name)
            facts, said = {"participant_id": name, "trusted": False}, "are trusted no more"
        else:
            is_new = catalog.facts.trust(name, note=options.note)
            facts = {"participant_id": name, "trusted": True, "new": is_new}
            said = "are trusted" if is_new else "were trusted already"
    return render.tell(options, facts, f"offers of {name} {said}, from the next time they come in")


def _trusted(options: argparse.Namespace) -> int:
    with _opened(options, new=False) as catalog:
        found = catalog.facts.trusted()
    rows = [
        (one["entry/participant-id"], one["entry/added-at"], one.get("entry/note", ""))
        for one in found
    ]
    head = ("PARTICIPANT", "SINCE", "NOTE")
    none = "no provider is trusted in this catalog"
    if options.catalog_file is None:
        none += "; `anabranch node offers trusted` lists those of the node"
    return render.tell_rows(options, found, rows, head, none)


# -- sync ------------------------------------------------------------------------------------


async def _sync(options: argparse.Namespace) -> int:
    from anabranch.surfaces.cli.commands.arca.client import ArcaClient

    arca = await ArcaClient.of(_folder(options))
    found = await arca.ask("POST", "offer-catalog/sync")
    rows = [(one["node_id"], one["status"]) for one in found["items"]]
    lines = render.table(rows, ("CATALOG", "STATUS")) if rows else []
    if found["status"] == "running":
        lines.append("some catalogs have not answered yet; it goes on")
    elif not rows:
        lines.append("no other catalog is known: `anabranch node directory query offer-catalog`")
    counts = ", ".join(f"{count:,} {name}" for name, count in found["counts"].items())
    return render.tell(options, found, "\n".join([*lines, f"offers: {counts}"]))


ACTIONS = {"put": _put, "list": _list, "show": _show, "trust": _trust}
