"""What is wrong with telling others a URL that leads to the machine that uses it."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence

from anabranch.store.cluster_ports import ServerRecord
from anabranch.work.network.loopback import is_loopback_url

log = logging.getLogger("anabranch.http")

LOOK_SECONDS = 5.0


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
