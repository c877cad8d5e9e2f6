"""Notifications of modules to the operator. One with the same idempotency key is kept once."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from anabranch.market.documents import digest_of
from anabranch.market.node.api import Answer, Call, Endpoint
from anabranch.market.node.entities import Entities, Family
from anabranch.market.node.errors import NodeError
from anabranch.market.node.modules.api.listing import collected
from anabranch.market.node.modules.api.words import derived_id, encoded
from anabranch.market.node.paging import page_of, paged
from anabranch.work.participants.performers import rfc3339

Level = Literal["info", "warning", "error"]
Key = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]


class Notify(msgspec.Struct, frozen=True):
    schema_version: Literal["v1"]
    capability_id: Literal["notify_emit"]
    level: Level
    title: Annotated[str, msgspec.Meta(min_length=1, max_length=240)]
    body: Annotated[str, msgspec.Meta(max_length=4096)] = ""
    correlation_id: Key | None = None
    idempotency_key: Key | None = None


class Notified(msgspec.Struct, frozen=True, tag="notified"):
    module_id: str
    level: Level
    title: str
    body: str
    at: int
    digest: str
    correlation_id: str = ""


def _evolve(_state: Notified | None, event: Notified) -> Notified:
    return event


NOTIFICATIONS: Family[Notified] = Family(
    "module-notification", Notified, Notified, _evolve, group=lambda state: state.module_id
)


class Notifications:
    def __init__(self, entities: Entities) -> None:
        self._entities = entities

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(
                method="POST",
                path="/v1/module/notify",
                scopes=("module",),
                handler=self._notify,
                summary="Tell the operator something.",
                body=Notify,
                misfit={"outcome": "rejected_invalid_request"},
                example={
                    "schema_version": "v1",
                    "capability_id": "notify_emit",
                    "level": "info",
                    "title": "Run run:1 is completed",
                },
                errors=(400, 409),
            ),
            Endpoint(
                method="GET",
                path="/v1/notifications",
                scopes=("operator",),
                handler=self._list,
                summary="What modules told the operator, newest first.",
                query=("module", "level", "limit", "before"),
                errors=(400,),
            ),
        ]

    async def _notify(self, call: Call) -> Answer:
        wanted = msgspec.convert(call.body, Notify)
        module = call.caller.module
        said = digest_of(encoded(wanted))
        outcome = "emitted"
        with self._entities.change() as change:
            name = self._name(module, wanted, said, change.now)
            known = change.get(NOTIFICATIONS, name)
            if known is None:
                event = Notified(
                    module_id=module,
                    level=wanted.level,
                    title=wanted.title,
                    body=wanted.body,
                    at=change.now,
                    digest=said,
                    correlation_id=wanted.correlation_id or "",
                )
                change.add(NOTIFICATIONS, name, event)
            elif known.digest != said:
                raise NodeError(
                    409,
                    "idempotency_conflict",
                    "idempotency_key was used for another notification",
                    more={"outcome": "rejected_other"},
                )
            else:
                outcome = "already_emitted"
        await self._entities.durable()
        return Answer(body={"schema_version": "v1", "outcome": outcome, "notification_id": name})

    def _name(self, module: str, wanted: Notify, said: str, now: int) -> str:
        if wanted.idempotency_key is not None:
            return derived_id("notification", module, "key", wanted.idempotency_key)
        number = 0
        while True:  # the same text within one millisecond is still said twice
            name = derived_id("notification", module, said, str(now), str(number))
            if self._entities.get(NOTIFICATIONS, name) is None:
                return name
            number += 1

    async def _list(self, call: Call) -> Answer:
        page, level = page_of(call.query), call.query.get("level")
        rows = await collected(
            self._entities,
            NOTIFICATIONS,
            page.limit,
            group=call.query.get("module"),
            before=page.before,
            keep=lambda one: level in (None, one.level),
        )
        return paged([(_view(name, one), card) for name, one, card in rows], page)


def _view(name: str, one: Notified) -> dict[str, Any]:
    view = {
        "notification_id": name,
        "module_id": one.module_id,
        "level": one.level,
        "title": one.title,
        "body": one.body,
        "emitted_at": rfc3339(one.at),
    }
    if one.correlation_id:
        view["correlation_id"] = one.correlation_id
    return view
