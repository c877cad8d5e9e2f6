"""Secrets are planted everywhere, and then everything is read that can be read. None is found."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from anabranch.surfaces.http.app import ALL_ROUTES
from anabranch.surfaces.http.routes import API

from ..access import Door, serving
from ..support import run
from .test_access_table import application, pages

NEEDED: Any = {"require_tokens": "yes"}
PASSWORD = "canary-of-the-keychain-5f3a"
SEALED = "canary-of-a-session-77b1"
PRIVATE = "canary-of-a-process-9c2d"
HOOK = "canary-of-a-webhook-variable-1e4f"

PLAYBOOK = """apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: leaky}
keychain:
  - {name: db, kind: env, variable: LEAK_PASSWORD}
workflow:
  - step: use
    tool: {kind: python, code: "result = {'echo': secret, 'in_text': 'x' + secret}", args: {secret: "{{ keychain.db }}"}}
    next: {arcs: [{step: fail}]}
  - step: fail
    tool: {kind: python, code: "raise ValueError('it was ' + secret)", args: {secret: "{{ keychain.db }}"}}
    next: {arcs: [{step: ask}]}
  - step: ask
    tool: {kind: decision, ask: "Go on?"}
"""  # noqa: E501
ORCHESTRATION = """{"id": "sealed", "structure": {"A": {"rule": "cm:xrc137:A"}}}
"""
RULES = {"A": {"payload": {"amount": {"type": "int64"}}, "rules": ["[amount] > 0"]}}


async def planted(door: Door) -> tuple[str, list[str]]:
    """Runs, tokens and hooks with secrets in them; an admin token, and what must not be seen."""
    admin = door.token("admin", name="root")
    made = await door.ask("POST", "/tokens", admin, {"name": "gpu", "scopes": ["work"]})
    other = door.token("operate", name="ann")
    begun = await door.ask("POST", "/runs", other, {"definition": PLAYBOOK})
    assert begun.status == 201, begun.text
    await door.ask("GET", f"/runs/{begun.json['run']}/wait?seconds=20&standing=true", admin)
    given = {"amount": 5, "__note": PRIVATE, "__secret_key": SEALED}
    body = {"definition": ORCHESTRATION, "rules": RULES, "input": given}
    session = await door.ask("POST", "/runs", other, body)
    assert session.status == 201, session.text
    await door.ask("GET", f"/runs/{session.json['run']}/wait?seconds=20&standing=true", admin)
    hook = {"url": "https://example.org/hook", "kinds": ["run.finished"]}
    kept = await door.ask("POST", "/webhooks", admin, hook)
    await door.ask("POST", "/webhooks", admin, {**hook, "secret_env": "LEAK_HOOK"})
    mistaken = f"anb_{'0' * 12}_{'7' * 52}"
    await door.ask("DELETE", f"/tokens/{mistaken}", admin)
    await door.ask("GET", f"/runs?name={mistaken}", admin)
    texts = [admin, other, made.json["token"], mistaken]
    secrets = [text.rpartition("_")[2] for text in texts] + [kept.json["secret"]]
    return admin, [*secrets, PASSWORD, SEALED, PRIVATE, HOOK]


async def names(door: Door, admin: str) -> dict[str, list[str]]:
    """What the paths of the API may be filled with."""
    runs = (await door.ask("GET", "/runs", admin)).json["items"]
    hooks = (await door.ask("GET", "/webhooks", admin)).json["items"]
    known = (await door.ask("GET", "/definitions", admin)).json["items"]
    return {
        "run": [one["run"] for one in runs],
        "webhook": [one["id"] for one in hooks],
        "fingerprint": [one["fingerprint"] for one in known],
    }


def filled(path: str, known: dict[str, list[str]]) -> Iterator[str]:
    found = re.search(r"\{(\w+)[^}]*\}", path)
    if found is None:
        yield path
        return
    for value in known.get(found[1], ["unknown"]) or ["unknown"]:
        yield from filled(path.replace(found[0], value, 1), known)


def check(where: str, text: str, secrets: list[str]) -> None:
    for secret in secrets:
        assert secret not in text, f"{where} shows {secret}"


def test_no_page_no_answer_no_log_and_no_file_shows_a_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("LEAK_PASSWORD", PASSWORD)
    monkeypatch.setenv("LEAK_HOOK", HOOK)
    looked: list[str] = []
    stars = 0

    async def go() -> list[str]:
        nonlocal stars
        async with serving(store=str(tmp_path / "s.db"), pages=True, **NEEDED) as door:
            admin, secrets = await planted(door)
            known = await names(door, admin)
            assert len(known["run"]) == 2
            ways = [("/" + one.path, one.media) for one in ALL_ROUTES if one.method == "GET"]
            ways += [("/" + path, "") for method, path in pages(application(door)) if method == "GET"]  # fmt: skip  # noqa: E501
            for path, _media in ways:
                for way in filled(path.replace("{anything:(?!api/).*}", "nowhere"), known):
                    at_once = "?seconds=0" if way.endswith("/wait") else ""
                    reply = await door.ask("GET", way + at_once, admin)
                    check(way, reply.text + str(reply.headers), secrets)
                    looked.append(way)
                    stars += "***" in reply.text
            return secrets

    with caplog.at_level(logging.DEBUG, logger="anabranch"):
        secrets = run(go())
    assert len(looked) > 60
    assert stars > 3  # the work had the password, and said it
    assert any(f"{API}/runs/" in way and way.endswith("/events") for way in looked)
    check("the log of the server", caplog.text, secrets)
    hashed = [*secrets[:4], PASSWORD, HOOK]  # tokens as hashes; the rest is never written at all
    for file in sorted(tmp_path.iterdir()):
        content = file.read_bytes()
        assert [one for one in hashed if one.encode() in content] == [], file.name
