"""A body that does not fit its type: the answer names the word that was meant."""

from __future__ import annotations

from typing import Any

from ...tables import wrong_answers
from ..support import run, serving


def test_what_was_meant_is_named() -> None:
    async def go() -> None:
        async with serving() as client:

            async def check(path: str, body: Any, hint: str) -> None:
                reply = await client.post(path, body)
                assert (reply.status, reply.json["code"]) == (422, "schema")
                assert reply.json["hint"] == hint

            assert (
                await wrong_answers(
                    [
                        ("/runs", {"definiton": "x"}, "did you mean 'definition'?"),
                        (
                            "/bulk",
                            {"verb": "paus"},
                            "give one of cancel, patch, pause, purge, redrive, resume",
                        ),
                        (
                            "/bulk",
                            {"verb": "pause", "filter": {"staus": []}},
                            "did you mean 'status'?",
                        ),
                        (
                            "/runs/x/gates/y/decide",
                            {"verdict": "yes"},
                            "give one of ask_again, fulfil, reject",
                        ),
                        ("/bulk", {"verb": 7}, "GET /api/v1/openapi.json has the schema"),
                        ("/bulk", [1], "GET /api/v1/openapi.json has the schema"),
                    ],
                    check,
                )
                == []
            )

    run(go())
