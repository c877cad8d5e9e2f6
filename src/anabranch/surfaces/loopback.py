"""URLs that lead to the machine that uses them, and what is wrong with telling one to others."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

from anabranch.store.cluster_ports import ServerRecord

log = logging.getLogger("anabranch.http")

LOOK_SECONDS = 5.0


def is_loopback(address: str) -> bool:
    return _read(address).is_loopback


def _read(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Without its zone; an IPv4 address in the form of IPv6 as what it is."""
    found = ipaddress.ip_address(address.partition("%")[0])
    return getattr(found, "ipv4_mapped", None) or found


def is_loopback_url(url: str) -> bool:
    """As far as its text says so; a name could lead anywhere."""
    host = (urlsplit(url).hostname or "").rstrip(".")
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = _read(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


async def warn_of_loopback(url: str, servers: Callable[[], Sequence[ServerRecord]]) -> None:
    """Say once that this server tells others a URL that is good on its own machine alone.
    `servers` are those that share its store, as they were seen last."""
    if not is_loopback_url(url):
        return
    while not (others := _on_other_machines(servers())):
        await asyncio.sleep(LOOK_SECONDS)
    log.warning(
        "this server tells workers the URL %s, which leads to it on this machine only, and its "
        "store has servers on other machines (%s): give it a URL that workers reach with "
        "--advertise (serve_advertise)",
        url,
        ", ".join(one.name for one in others),
    )


def _on_other_machines(servers: Sequence[ServerRecord]) -> list[ServerRecord]:
    """Servers that workers can ask: commands tell no URL. Names end with that of the machine."""
    here = f" on {socket.gethostname()})"
    return [one for one in servers if one.alive and one.url and not one.name.endswith(here)]
