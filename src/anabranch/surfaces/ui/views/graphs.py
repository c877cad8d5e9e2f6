"""The picture of a net, laid out once for each definition; what moves is added by the page."""

from __future__ import annotations

from collections import OrderedDict

from anabranch.net.draw_svg import svg
from anabranch.net.net import Net
from anabranch.surfaces.http.io.threads import in_thread

KEPT = 32


class Graphs:
    def __init__(self) -> None:
        self._drawn: OrderedDict[str, str] = OrderedDict()

    async def of(self, net: Net) -> str:
        """Large ones take a while, so that is done beside the event loop."""
        drawn = self._drawn.get(net.fingerprint)
        if drawn is None:
            drawn = await in_thread(svg, net, live=True)
            self._drawn[net.fingerprint] = drawn
            if len(self._drawn) > KEPT:
                self._drawn.popitem(last=False)
        return drawn
