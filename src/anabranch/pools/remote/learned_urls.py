"""Which URLs that servers tell of a worker uses: none that is weaker than those it was given.

The token of the worker goes to every server that it uses. Without a look at the URL it could go
there in clear, or to another program: a loopback address that a server tells of itself means the
machine of that server, and another one here.
"""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import urlsplit

from anabranch.work.network.loopback import is_loopback_url


def objection(url: str, given: Collection[str], *, token: bool) -> str:
    """Why a learned URL is not used; "" where it is. `token`: the worker has one to show."""
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return "this is no URL of a server"
    if not good or parts.username is not None or parts.query or parts.fragment:
        return "this is no URL of a server"
    if parts.scheme != "https" and any(one.startswith("https:") for one in given):
        return "its URL is not https, as that of the server this worker was given is"
    if is_loopback_url(url):
        if not any(map(is_loopback_url, given)):
            return "its URL is a loopback address of its own machine: start it with --advertise"
    elif token and parts.scheme != "https" and all(map(is_loopback_url, given)):
        return (
            "the token would go there in clear, and this worker was given loopback addresses only: "
            "let the server advertise an https URL, or give its address with --server"
        )
    return ""
