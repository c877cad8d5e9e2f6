"""Addresses and URLs that lead to the machine that uses them."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit


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
