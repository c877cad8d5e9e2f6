"""Every endpoint of the node, called by those who may not: refused, and nothing is changed."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import pytest

from anabranch.market.node.api import Endpoint
from anabranch.testing.market import World
from hangs import HANG_SECONDS

from .background import BackgroundNode

_NODE = World(["n"])["n"].node
assert _NODE is not None
ENDPOINTS: tuple[Endpoint, ...] = _NODE.api.endpoints
CALLERS = ("operator", "module", "open")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BackgroundNode]:
    with BackgroundNode(tmp_path_factory.mktemp("node")) as running:
        yield running


def asked(
    node: BackgroundNode,
    method: str,
    target: str,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> tuple[int, Any, Mapping[str, str]]:
    where = urlsplit(node.url)
    connection = http.client.HTTPConnection(
        where.hostname or "", where.port or 0, timeout=HANG_SECONDS
    )
    try:
        connection.putrequest(method, target)
        for name, value in (headers or {}).items():
            connection.putheader(name, value)
        if body is not None:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        answer = connection.getresponse()
        data = answer.read()
        return answer.status, json.loads(data) if data else None, dict(answer.getheaders())
    finally:
        connection.close()


def path_of(endpoint: Endpoint) -> str:
    return re.sub(r"{\w+\*?}", "execution:1", endpoint.path)


def body_of(endpoint: Endpoint) -> bytes | None:
    if endpoint.method == "GET":
        return None
    return json.dumps(endpoint.example or {}).encode()


REFUSED = [
    (caller, endpoint)
    for endpoint in ENDPOINTS
    for caller in CALLERS
    if "open" not in endpoint.scopes and caller not in endpoint.scopes
]


def test_every_endpoint_refuses_who_may_not_call_it_and_changes_nothing(
    node: BackgroundNode,
) -> None:
    before = node.written()
    assert len(REFUSED) > len(ENDPOINTS) / 2
    for caller, endpoint in REFUSED:
        status, body, _ = asked(
            node, endpoint.method, path_of(endpoint), body_of(endpoint), node.headers[caller]
        )
        expected = (401, "unauthorized") if caller == "open" else (403, "forbidden")
        assert (status, body["code"]) == expected, (caller, endpoint.method, endpoint.path)
    assert node.written() == before


def test_a_wrong_token_and_two_tokens_are_refused_everywhere(node: BackgroundNode) -> None:
    before = node.written()
    wrong = [dict.fromkeys(node.headers[caller], "a guess") for caller in CALLERS[:2]]
    both = {**node.headers["operator"], **node.headers["module"]}
    for endpoint in ENDPOINTS:
        for headers in (*wrong, both):
            status, body, _ = asked(
                node, endpoint.method, path_of(endpoint), body_of(endpoint), headers
            )
            assert (status, body["code"]) == (401, "unauthorized"), endpoint.path
    assert node.written() == before


#: What a browser says of a page of another site, of another port, and of a page in a sandbox.
PAGES: list[dict[str, str]] = [
    {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
    {"Origin": "https://evil.example"},  # of an old browser
    {"Origin": "http://127.0.0.1:1"},
    {"Origin": "null"},
    {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"},
]


def test_a_page_of_another_site_is_refused_everywhere_and_changes_nothing(
    node: BackgroundNode,
) -> None:
    """As text a browser sends it without asking first, to endpoints that are open to all as well
    as with the token of whoever lent it one."""
    before = node.written()
    for endpoint in ENDPOINTS:
        caller = next((one for one in CALLERS if one in endpoint.scopes), "open")
        for page in PAGES:
            if endpoint.method == "GET" and "Sec-Fetch-Site" not in page:
                continue  # a link looks like that
            headers = {"Content-Type": "text/plain", **page, **node.headers[caller]}
            status, body, _ = asked(
                node, endpoint.method, path_of(endpoint), body_of(endpoint), headers
            )
            assert (status, body["code"]) == (403, "wrong_origin"), (endpoint.path, page)
    assert node.written() == before


def test_programs_and_pages_of_the_node_are_no_other_site(node: BackgroundNode) -> None:
    own: list[dict[str, str]] = [
        {},
        {"Origin": node.url, "Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate"},
    ]
    for headers in own:
        status, body, _ = asked(node, "POST", "/peer/messages", b"{}", headers)
        assert (status, body["code"]) != (403, "wrong_origin")
        assert asked(node, "GET", "/healthz", None, headers)[0] == 200
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert asked(node, "GET", "/healthz", None, link)[0] == 200


def test_a_caller_who_is_refused_is_told_so_before_the_body_is_read(node: BackgroundNode) -> None:
    status, _, _ = asked(node, "POST", "/v1/ledger/top-up", b"{ no json")
    assert status == 401
    status, _, _ = asked(node, "POST", "/v1/status", b"{ no json", node.headers["operator"])
    assert status == 405


@pytest.mark.parametrize(
    ("method", "target", "status", "code"),
    [
        ("PATCH", "/v1/status", 405, "method"),
        ("DELETE", "/openapi.json", 405, "method"),
        ("GET", "/v1/executions/a%0Ab", 400, "bad_path"),
        ("GET", "/v1/executions/%FF", 400, "bad_path"),
        ("GET", "/v1/executions/%00", 400, "bad_path"),
        ("GET", f"/v1/executions/{'a' * 513}", 400, "bad_path"),
        ("GET", f"/v1/executions/{'a' * 512}", 404, "not_found"),
        ("POST", "/v1/executions/execution:1%2Fdispatch/dispatch", 404, "not_found"),
        ("GET", "/v1/executions?opne=true", 400, "bad_query"),
        ("GET", "/v1/executions?open=true&open=false", 400, "bad_query"),
        ("GET", "/v1/executions?open=yes", 400, "bad_query"),
        ("GET", f"/v1/executions?limit={'0' * 5000}1", 400, "bad_query"),
        ("GET", f"/cap?limit=000000001{'9' * 4500}", 400, "bad_query"),
        ("GET", "/v1/executions?before=W10", 400, "bad_query"),
        ("GET", "/v1/notifications?level=loud", 400, "bad_query"),
        ("GET", f"/v1/executions?run_id={'a' * 513}", 400, "bad_query"),
        ("GET", "/v1/executions?run_id=%00", 400, "bad_query"),
    ],
)
def test_what_no_path_and_no_query_can_be_is_refused(
    node: BackgroundNode, method: str, target: str, status: int, code: str
) -> None:
    found, body, headers = asked(node, method, target, None, node.headers["operator"])
    assert (found, body["code"]) == (status, code)
    assert headers["Content-Type"].startswith("application/problem+json")
    assert ("Allow" in headers) == (status == 405)
    assert set(body) >= {"status", "title", "code", "detail"}


HOSTILE = [
    *(b"null", b"[]", b'"text"', b"1", b"{}", b"[" * 5000, b'{"a":' * 5000),
    *(b'{"amount":1e400}', b'{"amount":1' + b"0" * 5000 + b"}", b'{"a":1,"a":2}', b"\xff\xfe"),
    *(b'{"a":"\\ud800"}', b'{"\\u0000":"\\u0000"}', b'{"amount":9223372036854775808}'),
    b'{"amount":-1,"idempotency_key":"\\u0000"}',
]


def test_no_body_whatever_breaks_an_endpoint(node: BackgroundNode) -> None:
    for endpoint in ENDPOINTS:
        if endpoint.method == "GET" or "/v1/modules/" in endpoint.path:
            continue
        caller = next((one for one in CALLERS if one in endpoint.scopes), "open")
        for body in HOSTILE:
            status, answer, _ = asked(
                node, endpoint.method, path_of(endpoint), body, node.headers[caller]
            )
            assert status != 500, (endpoint.path, body[:80])
            assert status < 400 or answer["code"], (endpoint.path, body[:80])


def test_an_endpoint_that_takes_a_smaller_body_says_so_while_it_is_read(
    node: BackgroundNode,
) -> None:
    most = min(one.body_bytes for one in ENDPOINTS)
    (path,) = {one.path for one in ENDPOINTS if one.path == "/revoke" and one.body_bytes == most}
    status, body, _ = asked(node, "POST", path, b'"' + b"a" * most + b'"')
    assert (status, body["code"]) == (413, "too_large")
    assert f"{most:,}" in body["detail"]
