"""Hooks: a call starts or signals runs, once; whatever is wrong with it changes nothing."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import io
import json
from typing import Any

import pytest

from anabranch.clock import SystemClock
from anabranch.errors import InputError
from anabranch.operations.access.credentials import CredentialDraft
from anabranch.operations.definitions.catalog import Draft
from anabranch.operations.triggers.triggers import TriggerDraft
from anabranch.operations.webhooks.signature import sign
from anabranch.store.access_ports import AuditFilter
from anabranch.store.ports import HeadFilter
from anabranch.surfaces.http.routes import API

from ..access import Door, Reply, serving
from ..support import playbook, run, step

SECRET = "a secret of the shop"
WAITS = playbook(step("wait", "wait", event="paid"), name="waits", path="waits")


def registered(door: Door, **more: Any) -> None:
    """The definitions `order` and `waits`, a credential, and a trigger."""
    parts = door.server.parts
    order = playbook(
        step("first", result="{{ workload.order }}"), name="order", workload={"order": ""}
    )
    drafts = [Draft(json.dumps(order), "o", "order"), Draft(json.dumps(WAITS), "w", "waits")]
    parts.catalog.register(drafts, 1)
    parts.credentials.add(CredentialDraft(name="shop", type="secret", data=SECRET))
    draft = {"name": "paid", "path": "order", "input": {"order": "{{ body.order }}"}}
    draft |= {"hook": {"credential": "shop"}, **more}
    parts.triggering.triggers.add(convert(draft))


def convert(draft: dict[str, Any]) -> TriggerDraft:
    import msgspec

    return msgspec.convert(draft, TriggerDraft)


async def call(door: Door, body: bytes, hook: str = "paid", **headers: str) -> Reply:
    given = {"Content-Type": "application/json"}
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    url = f"{door.server.url}/hooks/{hook}"
    async with door.session.post(url, data=io.BytesIO(body), headers=given) as response:
        return Reply(response.status, await response.json(content_type=None), response.headers)


def signed(door: Door, body: bytes, ago: int = 0, secret: str = SECRET) -> str:
    now = door.server.parts.engine.clock.now() // 1000
    return sign(secret, body, now - ago)


def runs(door: Door) -> list[str]:
    return [head.run for head in door.server.parts.store.heads(HeadFilter())]


BODY = b'{"order": "A-17"}'


def test_a_signed_call_starts_a_run_with_what_the_templates_make_of_it() -> None:
    async def go() -> None:
        async with serving(require_tokens="yes") as door:
            registered(door, labels={"from": "{{ headers['x-shop'] }}"})
            reply = await call(door, BODY, Anabranch_Signature=signed(door, BODY), X_Shop="north")
            assert reply.status == 202, reply
            begun = reply.json["run"]
            assert reply.headers["Location"] == f"{API}/runs/{begun}"
            state = await door.server.parts.verbs.wait(begun)
            shown = door.server.parts.verbs.read.show(begun)
            assert shown["input"] == {"order": "A-17"}
            assert state.finished_at
            assert shown["labels"] == {"from": "north", "trigger": "paid"}

    run(go())


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({}, 401, "signature_missing"),
        ({"Anabranch_Signature": "nonsense"}, 401, "signature_wrong"),
        ({"Anabranch_Signature": f"t=1,v1={'0' * 64}"}, 401, "signature_wrong"),
        ({"Anabranch_Signature": "OTHER"}, 401, "signature_wrong"),
        ({"Anabranch_Signature": "OLD"}, 401, "signature_expired"),
        ({"Anabranch_Signature": "EARLY"}, 401, "signature_expired"),
    ],
)
def test_a_call_that_is_not_genuine_changes_nothing(
    headers: dict[str, str], status: int, code: str
) -> None:
    async def go() -> None:
        async with serving() as door:
            registered(door)
            made = {
                "OTHER": signed(door, BODY, secret="another secret"),
                "OLD": signed(door, BODY, ago=301),
                "EARLY": signed(door, BODY, ago=-400),
            }
            given = {name: made.get(text, text) for name, text in headers.items()}
            reply = await call(door, BODY, **given)
            assert (reply.status, reply.code) == (status, code)
            assert SECRET not in json.dumps(reply.json)
            assert runs(door) == []

    run(go())


def test_a_signature_does_not_cover_another_body() -> None:
    async def go() -> None:
        async with serving() as door:
            registered(door)
            reply = await call(door, b'{"order": "B"}', Anabranch_Signature=signed(door, BODY))
            assert (reply.status, reply.code) == (401, "signature_wrong")

    run(go())


def test_a_signed_call_that_is_sent_again_is_refused() -> None:
    async def go() -> None:
        async with serving() as door:
            registered(door)
            signature = signed(door, BODY)
            first = await call(door, BODY, Anabranch_Signature=signature)
            again = await call(door, BODY, Anabranch_Signature=signature)
            assert (first.status, again.status, again.code) == (202, 409, "replayed")
            assert runs(door) == [first.json["run"]]
            other = await call(door, BODY, Anabranch_Signature=signed(door, BODY, ago=60))
            assert other.status == 202
            assert len(runs(door)) == 2

    run(go())


class ClockAhead(SystemClock):
    def __init__(self, ms: int) -> None:
        super().__init__()
        self._ahead = ms

    def now(self) -> int:
        return super().now() + self._ahead


def github(body: bytes) -> str:
    return "sha256=" + hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()


async def replays(door: Door, **around: str) -> set[str]:
    """What is said to a captured call that is sent with something new around it."""
    replies = [
        await call(door, BODY, **{**around, "Idempotency_Key": "one more"}),
        await call(door, BODY, "paid?another=query", **around),
        await call(door, BODY, X_GitHub_Delivery="another", X_Request_ID="another", **around),
        await call(door, BODY, **around),
    ]
    return {reply.code for reply in replies}


def test_a_captured_call_starts_nothing_more_whatever_is_put_around_it() -> None:
    """Also one that was taken with a key."""

    async def go() -> None:
        async with serving() as door:
            registered(door)
            signature = signed(door, BODY)
            assert (await call(door, BODY, Anabranch_Signature=signature)).status == 202
            instant, _, mac = signature.partition(",")
            for same in (
                signature,
                f"{signature},v1={'0' * 64}",
                f"{instant},v1={'f' * 64},{mac}",
                signature.replace("t=", "t=000"),
                f" {signature} ",
            ):
                assert await replays(door, Anabranch_Signature=same) == {"replayed"}, same
            keyed = signed(door, BODY, ago=9)
            second = await call(door, BODY, Anabranch_Signature=keyed, Idempotency_Key="k")
            repeat = await call(door, BODY, Anabranch_Signature=keyed, Idempotency_Key="k")
            assert repeat.json == second.json
            assert await replays(door, Anabranch_Signature=keyed) == {"replayed"}
            anew = await call(
                door, BODY, Anabranch_Signature=signed(door, BODY, 5), Idempotency_Key="k"
            )
            assert anew.json == second.json, "the key of a sender who signs each try anew"
            late = signed(door, BODY, ago=30)
            at_once = await asyncio.gather(
                *(
                    call(door, BODY, Anabranch_Signature=late, Idempotency_Key=f"at once {each}")
                    for each in range(8)
                )
            )
            assert sorted(reply.status for reply in at_once) == [202, *[409] * 7]
            assert len(runs(door)) == 3

    run(go())


def test_a_call_of_github_is_remembered_for_as_long_as_the_trigger_says() -> None:
    """Its signature covers the body alone: neither an instant nor the id of the delivery."""

    async def go() -> None:
        async with serving() as door:
            hook = {"credential": "shop", "scheme": "github", "remember": "30d"}
            registered(door, hook={**hook, "key": "{{ headers['x-github-delivery'] }}"})
            add = door.server.parts.triggering.triggers.add
            draft = convert(
                {"name": "other", "path": "order", "hook": {**hook, "scheme": "anabranch"}}
            )
            with pytest.raises(InputError, match="belongs to the scheme github"):
                add(draft)
            around = {"X_Hub_Signature_256": github(BODY)}
            first = await call(door, BODY, X_GitHub_Delivery="d1", **around)
            assert first.status == 202, first
            again = await call(door, BODY, X_GitHub_Delivery="d1", **around)
            assert again.json == first.json
            engine = door.server.parts.engine
            for days, status in ((0, 409), (29, 409), (31, 202)):
                engine.clock = ClockAhead(days * 24 * 3600 * 1000)
                other = await call(door, BODY, X_GitHub_Delivery=f"d{days}", **around)
                assert other.status == status, other
            assert len(runs(door)) == 2

    run(go())


def test_calls_with_one_key_at_once_start_one_run() -> None:
    async def go() -> None:
        async with serving() as door:
            registered(door)
            replies = await asyncio.gather(
                *(
                    call(
                        door,
                        BODY,
                        Anabranch_Signature=signed(door, BODY, ago=each),
                        Idempotency_Key="one",
                    )
                    for each in range(12)
                )
            )
            assert {reply.status for reply in replies} == {202}
            assert {reply.json["run"] for reply in replies} == set(runs(door))
            assert len(runs(door)) == 1
            other = b'{"order": "B"}'
            conflict = await call(
                door, other, Anabranch_Signature=signed(door, other), Idempotency_Key="one"
            )
            assert (conflict.status, conflict.code) == (409, "idempotency")

    run(go())


def test_the_key_may_come_from_the_body() -> None:
    async def go() -> None:
        async with serving() as door:
            registered(door, hook={"credential": "shop", "key": "{{ body.order }}"})
            for ago in (0, 1, 2):
                reply = await call(door, BODY, Anabranch_Signature=signed(door, BODY, ago))
                assert reply.status == 202
            assert len(runs(door)) == 1

    run(go())


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"not json", 400, "not_json"),
        (b'{"order": 1, "order": 2}', 400, "duplicate_key"),
        (b"[1]", 422, "trigger_template"),
        (b"", 422, "trigger_template"),
        (b'{"other": 1}', 422, "trigger_template"),
        (b'"' + b"x" * 1_100_000 + b'"', 413, "too_large"),
    ],
)
def test_a_body_that_cannot_be_used_changes_nothing(body: bytes, status: int, code: str) -> None:
    async def go() -> None:
        async with serving() as door:
            registered(door)
            reply = await call(door, body, Anabranch_Signature=signed(door, body))
            assert (reply.status, reply.code) == (status, code)
            assert runs(door) == []

    run(go())


def test_a_template_that_would_make_a_hundred_megabytes_is_refused() -> None:
    async def go() -> None:
        async with serving() as door:
            registered(door, input={"order": "{{ 'x' * 100000000 }}"})
            reply = await call(door, BODY, Anabranch_Signature=signed(door, BODY))
            assert (reply.status, reply.code) == (422, "trigger_template")
            assert runs(door) == []

    run(go())


def test_another_media_type_and_an_unknown_hook_are_refused() -> None:
    async def go() -> None:
        async with serving() as door:
            registered(door)
            reply = await call(
                door, BODY, Anabranch_Signature=signed(door, BODY), Content_Type="text/plain"
            )
            assert (reply.status, reply.code) == (415, "media_type")
            assert (await call(door, BODY, hook="pald")).code == "no_hook"
            door.server.parts.triggering.triggers.pause("paid")
            paused = await call(door, BODY, Anabranch_Signature=signed(door, BODY))
            assert (paused.status, paused.code) == (409, "trigger_paused")
            assert runs(door) == []

    run(go())


def test_without_its_secret_a_hook_takes_nothing() -> None:
    async def go() -> None:
        async with serving() as door:
            registered(door, hook={"credential": "gone"})
            reply = await call(door, BODY, Anabranch_Signature=signed(door, BODY))
            assert (reply.status, reply.code) == (503, "hook_secret")
            assert "gone" not in reply.json["detail"]

    run(go())


def test_the_scheme_of_github_is_taken() -> None:
    async def go() -> None:
        async with serving() as door:
            registered(door, hook={"credential": "shop", "scheme": "github"})
            mac = hmac.new(SECRET.encode(), BODY, hashlib.sha256).hexdigest()
            good = await call(door, BODY, X_Hub_Signature_256=f"sha256={mac}")
            again = await call(door, BODY, X_Hub_Signature_256=f"sha256={mac}")
            wrong = await call(door, BODY, X_Hub_Signature_256=f"sha256={'0' * 64}")
            assert (good.status, again.code, wrong.code) == (202, "replayed", "signature_wrong")

    run(go())


def test_a_hook_with_a_token_takes_the_scopes_hook_and_operate_of_its_senders() -> None:
    async def go() -> None:
        async with serving(require_tokens="yes") as door:
            registered(door, hook={"auth": "token", "senders": ["shop"]})
            replies = {
                scope: await call(
                    door, BODY, Authorization=f"Bearer {door.token(scope, name='shop')}"
                )
                for scope in ("read", "decide", "work", "hook", "operate", "admin")
            }
            assert {scope: reply.status for scope, reply in replies.items()} == {
                "read": 403,
                "decide": 403,
                "work": 403,
                "hook": 202,
                "operate": 202,
                "admin": 202,
            }
            stranger = await call(door, BODY, Authorization=f"Bearer {door.token('hook')}")
            assert (stranger.status, stranger.code) == (403, "sender")
            assert (await call(door, BODY)).status == 401
            assert (await call(door, BODY, Authorization="Bearer anb_x")).status == 401
            assert len(runs(door)) == 3

    run(go())


def test_a_call_signals_the_runs_with_these_labels_once() -> None:
    async def go() -> None:
        async with serving() as door:
            signal = {"name": "paid", "labels": {"order": "{{ body.order }}"}}
            registered(door, path=None, signal=signal, input={"amount": "{{ body.amount }}"})
            parts = door.server.parts
            nobody = await call(door, BODY[:-1] + b', "amount": 3}', Anabranch_Signature="x")
            assert nobody.code == "signature_wrong"
            body = b'{"order": "A-17", "amount": 3}'
            none = await call(door, body, Anabranch_Signature=signed(door, body))
            assert (none.status, none.code) == (404, "no_run")
            found = await parts.find_definition("waits")
            begun = await parts.verbs.start(found, labels={"order": "A-17"})
            await parts.verbs.start(found, labels={"order": "B"})
            sent = await call(door, body, Anabranch_Signature=signed(door, body, ago=60))
            assert sent.json["signalled"] == [begun]
            await parts.verbs.wait(begun)
            assert parts.verbs.read.show(begun)["status"] == "completed"

    run(go())


def test_when_says_which_calls_do_something() -> None:
    async def go() -> None:
        async with serving() as door:
            registered(door, when="{{ body.order != 'A-17' }}")
            reply = await call(door, BODY, Anabranch_Signature=signed(door, BODY))
            assert (reply.status, reply.json["fired"], runs(door)) == (202, False, [])

    run(go())


def told(door: Door) -> list[tuple[str, str, str, str]]:
    """The audit trail, the first line first."""
    lines = door.server.parts.store.audit(AuditFilter())
    return [(one.actor, one.action, one.subject, one.outcome) for one in reversed(lines)]


def test_a_call_that_a_full_limit_refuses_may_come_again_once_there_is_a_place() -> None:
    async def go() -> None:
        async with serving() as door:
            one = playbook(
                step("wait", "wait", event="go"),
                name="one",
                workload={"order": ""},
                concurrency={"limit": 1, "when_full": "reject"},
            )
            door.server.parts.catalog.register([Draft(json.dumps(one), "1", "one")], 2)
            registered(door, path="one")
            first = await call(door, BODY, Anabranch_Signature=signed(door, BODY))
            assert first.status == 202, first
            store = door.server.parts.store
            while not store.admissions("one"):  # it asks for its place when it is recorded,
                await asyncio.sleep(0.01)
            late = signed(door, BODY, ago=60)
            refused = await call(door, BODY, Anabranch_Signature=late)
            assert (refused.status, refused.code) == (409, "limit_full")
            assert runs(door) == [first.json["run"]]
            await door.ask("POST", f"/runs/{first.json['run']}/cancel", body={})
            await door.server.parts.verbs.wait(first.json["run"])
            while store.admissions("one"):  # and leaves it when its end is
                await asyncio.sleep(0.01)
            again = await call(door, BODY, Anabranch_Signature=late)
            assert again.status == 202, again
            assert len(runs(door)) == 2

    run(go())


def test_the_audit_trail_has_every_genuine_call_and_how_it_ended() -> None:
    async def go() -> None:
        async with serving(require_tokens="yes") as door:
            registered(door)
            signature = signed(door, BODY)
            for given in (signature, signature, "nonsense", signed(door, BODY, ago=900)):
                await call(door, BODY, Anabranch_Signature=given)
            await call(door, b"[1]", Anabranch_Signature=signed(door, b"[1]"))
            door.server.parts.triggering.triggers.pause("paid")
            await call(door, BODY, Anabranch_Signature=signed(door, BODY, ago=60))
            await call(door, BODY, hook="pald", Anabranch_Signature=signature)
            assert told(door) == [
                ("hook:paid", "hooks.call", "paid", "done"),
                ("hook:paid", "hooks.call", "paid", "refused: replayed"),
                ("hook:paid", "hooks.call", "paid", "refused: trigger_template"),
                ("hook:paid", "hooks.call", "paid", "refused: trigger_paused"),
            ]

    run(go())


def test_the_audit_trail_names_the_holder_of_the_token_that_called_a_hook() -> None:
    async def go() -> None:
        async with serving(require_tokens="yes") as door:
            registered(door, hook={"auth": "token", "senders": ["shop"]})
            ann, shop = door.token("read", name="ann"), door.token("hook", name="shop")
            for token in (ann, shop, door.token("hook", name="eve"), "anb_x"):
                await call(door, BODY, Authorization=f"Bearer {token}")
            await call(door, BODY)
            assert told(door) == [
                ("ann", "hooks.call", "paid", "refused: scope"),
                ("shop", "hooks.call", "paid", "done"),
                ("eve", "hooks.call", "paid", "refused: sender"),
            ]
            (_, line, _) = door.server.parts.store.audit(AuditFilter())
            assert line.detail == f"token {shop.split('_')[1]}"
            assert line.address == "127.0.0.1"

    run(go())
