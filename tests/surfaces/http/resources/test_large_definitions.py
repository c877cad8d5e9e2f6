"""A definition that comes as values has no more of them than its text may have."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from anabranch.dialects.reading import SourceLimits
from anabranch.operations.definitions import prepare
from anabranch.surfaces.http.resources import workflows

from ..support import HELLO, run, serving

MANY = {"a": [1] * (SourceLimits().values_max + 1)}
ROUTES = {
    "/definitions/check": {"definition": MANY},
    "/definitions/format": {"definition": MANY},
    "/definitions/graph": {"definition": MANY},
    "/definitions": {"definition": MANY},
    "/templates": {"template": MANY},
    "/catalog": {"definitions": [{"definition": MANY, "path": "a/b"}]},
    "/runs": {"definition": MANY},
}


@pytest.mark.parametrize("path", ROUTES)
def test_values_are_counted_before_their_text_is_made_and_beside_the_event_loop(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[threading.Thread] = []

    def require_size(source: Any) -> None:
        counted.append(threading.current_thread())
        prepared(source)

    prepared = prepare.require_size
    for module in (prepare, workflows):
        monkeypatch.setattr(module, "require_size", require_size)

    async def work() -> None:
        async with serving() as client:
            reply = await client.post(path, ROUTES[path])
            assert (reply.status, reply.json["code"]) == (413, "too_many_values"), reply.text
        assert counted
        assert threading.current_thread() not in counted

    run(work())


def test_what_is_small_enough_is_not_counted() -> None:
    prepare.require_size(HELLO)
    prepare.require_size({"text": "1," * SourceLimits().values_max})
