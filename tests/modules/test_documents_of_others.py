"""What peers send to modules: its bytes come first, and what is much is read beside their loop."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from anabranch.clock import ManualClock
from anabranch.market.node.door import LARGE
from anabranch.modules.arca.discovery import fan_out_answers
from anabranch.modules.arca.discovery.fan_out_answers import FanOutAnswers
from anabranch.modules.arca.results import Results
from anabranch.modules.arca.template_catalog import public
from anabranch.modules.arca.template_catalog.public import PublicTemplates
from anabranch.modules.dator.admission import Admission
from anabranch.modules.dator.config import DatorConfig
from anabranch.modules.kit.module import PeerMessage
from market.checks import BESIDE, HERE, watch_checks

NOBODY: Any = None  # no document here is sound, so none of these is asked
RESULT, DISPATCH = "service-order.result.v1", "service-order.dispatch.request.v1"


def message(msg: str, size: int) -> PeerMessage:
    return PeerMessage(msg, {"x": "y" * size}, "c", "node:x")


def invoked(schema: str, size: int) -> dict[str, Any]:
    data = b64encode(msgspec.json.encode({"x": "y" * size})).decode()
    return {"artifact": {"schema": schema, "bytes/base64": data}}


async def asked_to_fan_out(size: int) -> Any:
    answers = FanOutAnswers(NOBODY, ManualClock(0))
    return await answers.asked(message(fan_out_answers.REQUEST, size))


async def asked_for_a_template(size: int) -> Any:
    return await PublicTemplates(NOBODY).answer(message(public.REQUEST, size))


async def given_a_result(size: int) -> Any:
    return await Results(NOBODY, NOBODY).accept(invoked(RESULT, size))


async def given_a_request(size: int) -> Any:
    admission = Admission(
        book=NOBODY, offers=NOBODY, clock=ManualClock(0), config=DatorConfig(), begin=NOBODY
    )
    return await admission.accept(invoked(DISPATCH, size))


@pytest.mark.parametrize(
    ("kind", "hand_in"),
    [
        (fan_out_answers.REQUEST, asked_to_fan_out),
        (public.REQUEST, asked_for_a_template),
        (RESULT, given_a_result),
        (DISPATCH, given_a_request),
    ],
)
def test_a_large_document_is_checked_beside_the_event_loop(
    kind: str, hand_in: Callable[[int], Awaitable[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = watch_checks(monkeypatch)

    async def scenario() -> None:
        for size in (10, LARGE):
            await hand_in(size)

    asyncio.run(scenario())
    assert checks == [(kind, HERE), (kind, BESIDE)]
