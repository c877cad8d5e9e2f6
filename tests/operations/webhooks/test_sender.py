"""What leaves the house: signed, bounded, not redirected, and to no address it must not reach."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from anabranch.errors import InputError
from anabranch.operations.webhooks import sender
from anabranch.operations.webhooks.sender import Addresses, SendResult, WebhookSender, checked_url
from anabranch.operations.webhooks.signature import sign, verify

from ..support import run

BODY = b'{"a":1}'


@asynccontextmanager
async def receiver(status: int = 200, text: str = "", **headers: str) -> AsyncIterator[str]:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(status=status, text=text, headers=headers)

    app = web.Application()
    app.router.add_post("/in", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/in"
    finally:
        await runner.cleanup()


async def posted(url: str, addresses: Addresses = "any", seconds: float = 5) -> SendResult:
    poster = WebhookSender(addresses, seconds)
    try:
        return await poster.post(url, BODY, {})
    finally:
        await poster.close()


def test_a_signature_holds_for_its_body_secret_and_time_and_for_nothing_else() -> None:
    header = sign("s3cret", BODY, 1000)
    assert header.startswith("t=1000,v1=")
    assert verify("s3cret", header, BODY, 1000)
    assert verify("s3cret", header, BODY, 1300)
    assert not verify("s3cret", header, BODY, 1301)
    assert not verify("other", header, BODY, 1000)
    assert not verify("s3cret", header, BODY + b" ", 1000)
    assert not verify("s3cret", header.replace("t=1000", "t=1001"), BODY, 1000)
    for garbage in ("", "t=,v1=", "v1=00", header + ",v1=00", "t=1000,v1=é"):
        assert not verify("s3cret", garbage, BODY, 1000)


def test_the_check_in_the_documentation_agrees_with_ours() -> None:
    page = (Path(__file__).parents[3] / "docs" / "webhooks.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.S)
    (code,) = (block for block in blocks if "def genuine" in block)
    names: dict[str, Any] = {}
    exec(code, names)
    now = int(time.time())
    for secret, header, body in (
        ("s", sign("s", BODY, now), BODY),
        ("s", sign("s", BODY, now), b"other"),
        ("s", sign("t", BODY, now), BODY),
        ("s", sign("s", BODY, now - 400), BODY),
    ):
        assert names["genuine"](secret, header, body) == verify(secret, header, body, now)
    assert names["genuine"]("s", sign("s", BODY, now), BODY)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("ftp://example.org/x", "such as https"),
        ("https://", "such as https"),
        ("https://example.org:0/", "such as https"),
        ("https://example.org:99999/", "such as https"),
        ("https://example.org/a b", "such as https"),
        ("https://example.org/" + "x" * 2000, "such as https"),
        ("https://user:pw@example.org/", "user or password"),
        ("https://example.org/#x", "fragment"),
        ("http://127.0.0.1/x", "webhook_addresses"),
        ("http://[::1]:8000/x", "webhook_addresses"),
        ("http://169.254.169.254/latest", "webhook_addresses"),
        # What becomes an address on the way there: other digits, octal, short, as one number.
        ("http://①②⑦.0.0.1/", "plain letters"),
        ("http://①⑥⑨。②⑤④｡①⑥⑨.②⑤④/latest", "plain letters"),
        ("http://0177.0.0.1/", "plain letters"),
        ("http://127.1/", "plain letters"),
        ("http://2130706433/", "plain letters"),
        ("http://0x7f.1/", "plain letters"),
        ("http://localhost:8745/", "ANABRANCH_WEBHOOK_ADDRESSES=any"),
        ("http://api.LocalHost./", "not a public address"),
    ],
)
def test_an_address_that_cannot_be_used_is_refused_with_the_reason(url: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        checked_url(url, "public")


def test_a_name_that_leads_into_the_house_is_refused_when_it_is_looked_up() -> None:
    async def work() -> None:
        async with receiver() as url:
            assert (await posted(url)).taken
            named = url.replace("127.0.0.1", "localhost")
            for address in (url, named):
                refused = await posted(address, "public")
                assert refused.status is None
                assert "not a public address (setting webhook_addresses)" in refused.error
            for odd in ("127.1", "2130706433", "0x7f000001", "017700000001"):
                assert (await posted(url.replace("127.0.0.1", odd), "public")).status is None

    run(work())


@pytest.mark.parametrize("host", ["127.0.0.1", "①②⑦.0.0.1", "localhost", "0.0.0.0"])
def test_no_connection_into_the_house_is_opened_whatever_the_check_of_the_url_overlooks(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, "checked_url", lambda url, _addresses: url)

    async def work() -> None:
        async with receiver() as url:
            refused = await posted(url.replace("127.0.0.1", host), "public")
            assert refused.status is None
            assert "not a public address" in refused.error

    run(work())


def test_a_redirect_is_a_failure_and_is_not_followed() -> None:
    async def work() -> None:
        async with receiver() as target, receiver(307, Location=target) as url:
            found = await posted(url)
            assert (found.status, found.taken) == (307, False)
            assert "redirects are refused" in found.error

    run(work())


def test_of_a_long_answer_only_the_beginning_is_read() -> None:
    async def work() -> None:
        async with receiver(text="x" * 5_000_000) as url:
            assert (await posted(url)).taken

    run(work())


def test_an_answer_that_does_not_come_and_a_host_that_is_not_there_are_failures() -> None:
    async def hanging(_request: web.Request) -> web.Response:
        await asyncio.sleep(60)
        return web.Response()

    async def work() -> None:
        app = web.Application()
        app.router.add_post("/in", hanging)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        try:
            late = await posted(f"http://127.0.0.1:{port}/in", seconds=0.2)
        finally:
            await runner.cleanup()
        assert late.error == "no answer within 0.2 s"
        gone = await posted(f"http://127.0.0.1:{port}/in")
        assert gone.status is None
        assert gone.error.startswith("no connection (")
        nowhere = await posted("http://nothing.invalid/in")
        assert nowhere.error == "the host name is not known"

    run(work())
