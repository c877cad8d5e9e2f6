"""A real node in bad company: forged and late envelopes, huge bodies, wrong tokens, other names of
the host. Each is refused by its name, nothing is changed, and no secret is in the log."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from anabranch.market.node.keys import KeyFolder, KeySigner
from anabranch.market.node.modules.tokens import CONTROL_HEADER, MODULE_HEADER
from anabranch.market.node.peers.envelope import seal

from .node_processes import Answered, NodeProcess

pytestmark = pytest.mark.slow

HOUR_MS = 60 * 60 * 1000
ESTABLISH = "peer.session.establish"
PEER = "/peer/messages"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    made = NodeProcess(tmp_path / "node")
    made.start()
    try:
        yield made
    finally:
        if made.process is not None and made.process.poll() is None:
            made.kill()


@pytest.fixture
def stranger(tmp_path: Path) -> KeySigner:
    return KeyFolder.create(tmp_path / "stranger").signer()


def now() -> int:
    return round(time.time() * 1000)


def envelope(signer: KeySigner, to: str, *, at: int | None = None, **more: Any) -> dict[str, Any]:
    given: dict[str, Any] = {"msg": ESTABLISH, "payload": {}, "nonce": "abcdef" * 6, **more}
    data = seal(
        signer,
        to=to,
        kind="request",
        correlation_id="one",
        now=now() if at is None else at,
        **given,
    )
    found: dict[str, Any] = json.loads(data)
    return found


def refused(answer: Answered) -> tuple[int, str]:
    return answer.status, answer.body["code"]


def send(node: NodeProcess, body: Any) -> Answered:
    data = body if isinstance(body, bytes) else json.dumps(body, separators=(",", ":")).encode()
    return node.ask("POST", PEER, data, headers={})


def test_forged_and_late_envelopes_are_refused_by_name(
    node: NodeProcess, stranger: KeySigner
) -> None:
    before = node.ask("GET", "/v1/status").body["open"]
    good = envelope(stranger, node.node_id)
    forged = (401, "peer_signature")
    assert refused(send(node, {**good, "from": node.node_id})) == forged
    assert refused(send(node, {**good, "from": stranger.participant_id})) == forged
    assert refused(send(node, {**good, "payload": {"more": 1}})) == forged
    assert refused(send(node, {**good, "msg": "offer-catalog.push.request"})) == forged
    assert refused(send(node, envelope(stranger, stranger.node_id))) == (403, "peer_recipient")
    for skew in (HOUR_MS, -HOUR_MS):
        late = envelope(stranger, node.node_id, at=now() + skew)
        assert refused(send(node, late)) == (400, "clock_skew")
    unknown = envelope(stranger, node.node_id, msg="offers.fetch", session="session:x", sequence=1)
    status, code = refused(send(node, unknown))
    assert 400 <= status < 500, code
    assert refused(send(node, {**good, "surprise": 1}))[0] == 400
    assert send(node, good).status == 200  # and one that is genuine is taken
    assert node.ask("GET", "/v1/status").body["open"] == before


def test_huge_deep_and_broken_bodies_are_refused(node: NodeProcess, stranger: KeySigner) -> None:
    huge = envelope(stranger, node.node_id, payload={"x": "y" * 10_000_000})
    assert refused(send(node, huge)) == (413, "too_large")
    assert send(node, b"x" * 17_000_000).status == 413
    assert send(node, b"[" * 100_000).status == 400
    assert send(node, b"not JSON").status == 400
    assert send(node, b"\xff\xfe").status == 400
    top_up = {"amount": 1, "note": "x" * 10_000_000}
    assert node.ask("POST", "/v1/ledger/top-up", top_up).status == 400
    assert node.ask("GET", "/v1/ledger/account").body["balance"] == 0


WRONG: list[Mapping[str, str]] = [
    {},
    {CONTROL_HEADER: ""},
    {CONTROL_HEADER: "wrong"},
    {CONTROL_HEADER: "é"},
    {MODULE_HEADER: "wrong"},
    {"Authorization": "Bearer TOKEN"},
    {"Cookie": f"{CONTROL_HEADER}=TOKEN"},
    {MODULE_HEADER: "TOKEN"},
    {CONTROL_HEADER: "TOKEN", MODULE_HEADER: "TOKEN"},
]


def test_no_other_token_and_no_other_name_of_the_host_opens_anything(node: NodeProcess) -> None:
    token = node.folder.control_token.read_text()
    body = {"amount": 1}
    for given in WRONG:
        headers = {name: value.replace("TOKEN", token) for name, value in given.items()}
        answer = node.ask("POST", "/v1/ledger/top-up", body, headers)
        assert refused(answer) == (401, "unauthorized"), given
    names = (
        "evil.example",
        f"evil.example:{node.port}",
        "127.0.0.1.evil.example",
        "localhost.",
        "",
    )
    for host in names:
        answer = node.ask("POST", "/v1/ledger/top-up", body, {CONTROL_HEADER: token, "Host": host})
        assert refused(answer) == (421, "host"), host
    assert node.ask("GET", "/v1/ledger/account").body["balance"] == 0
    for host in ("localhost", f"LOCALHOST:{node.port}", f"[::1]:{node.port}", "127.0.0.1"):
        assert node.ask("GET", "/healthz", headers={"Host": host}).status == 200, host


def test_the_log_has_no_secret_and_the_state_nothing_of_it(
    node: NodeProcess, stranger: KeySigner
) -> None:
    token = node.folder.control_token.read_text()
    keys = [file.read_text().strip() for file in node.folder.keys.iterdir()]
    send(node, {**envelope(stranger, node.node_id), "from": node.node_id})
    node.ask("POST", "/v1/ledger/top-up", {"amount": -1, "note": token})
    node.ask("GET", f"/v1/{token}", headers={CONTROL_HEADER: token + "x"})
    node.stop()
    log = (node.folder.path / "log").read_text()
    assert "Traceback" not in log
    for secret in (token, *keys):
        assert secret not in log
    checked = node.check()
    assert checked.problems == []
    node.start()
    node.stop(signal.SIGINT)
    assert node.check().streams == checked.streams  # its advertisement and the number of it
