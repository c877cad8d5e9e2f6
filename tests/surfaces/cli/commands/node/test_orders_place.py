"""`node orders place`: what the operator is told of an order."""

from __future__ import annotations

import argparse
from typing import Any

import pytest

from anabranch.surfaces.cli.commands.node import market
from in_loop import in_loop

OPENED = {
    "status": "opened-execution", "order_id": "order:one", "execution_id": "execution:one",
}  # fmt: skip


class Client:
    def __init__(self, answer: dict[str, Any]) -> None:
        self.answer = answer

    async def ask(self, _method: str, _path: str, _body: Any) -> dict[str, Any]:
        return self.answer


@pytest.mark.parametrize(
    ("delivery", "code", "words"),
    [
        ({}, 0, ""),
        ({"delivery": {"status": "deferred"}}, 0, ""),
        ({"delivery": {"status": "failed", "code": "c", "detail": "too many"}}, 1, "too many"),
    ],
)
@in_loop
async def test_an_order_that_was_not_sent_is_no_success(
    delivery: dict[str, Any], code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = argparse.Namespace(
        offer="offer:a", input="{}", units=1, max_amount=None, id=None, no_dispatch=False,
        json=False,
    )  # fmt: skip
    client: Any = Client({**OPENED, **delivery})
    assert await market.place(options, client) == code
    told = capsys.readouterr().out
    assert "order:one opened execution:one" in told
    assert words in told
