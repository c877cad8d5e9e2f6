"""Encrypted rules and logs: the envelope XGR1, opened and made with the keys of a file."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

import anabranch
from anabranch.errors import InputError
from anabranch.settings import Settings
from anabranch.work.rule.ports import DecryptionFailed
from anabranch.work.rule.xgr1 import envelope, keys_in, open_sealed, seal

KEY, OTHER = bytes(range(32)), bytes(32)
RULE = {"payload": {"n": {"type": "int64"}}, "rules": ["[n] > 1"],
        "onValid": {"payload": {"m": "[n] * 2"}}}  # fmt: skip
ONE = {"id": "one", "structure": {"A1": {"rule": "cm:xrc137:A"}}}


def test_what_was_sealed_is_opened_with_its_key_alone() -> None:
    text = seal(b"hello", KEY, bytes(12))
    assert text == seal(b"hello", KEY, bytes(12))
    prefix, suite, rid, body = text.split(".")
    raw = base64.b64decode(body)
    assert (prefix, suite, len(raw)) == ("XGR1", "AESGCM256", 12 + 5 + 16)
    assert rid == "0x" + hashlib.sha256(raw).hexdigest()
    assert open_sealed(text, KEY) == b"hello"
    without_tag = f"XGR1.AESGCM256.{hashlib.sha256(raw[:-16]).hexdigest()}.{body}"
    assert open_sealed(without_tag, KEY) == b"hello", "a rid without the tag is in use as well"
    with pytest.raises(DecryptionFailed, match="the key does not open"):
        open_sealed(text, OTHER)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("XGR1.AESGCM256.00", "no XGR1 text"),
        ("XGR2.AESGCM256.00.00", "no XGR1 text"),
        ("XGR1.ROT13.00.00", "suite 'ROT13' is not known"),
        ("XGR1.AESGCM256.00.!!", "no base64"),
        ("XGR1.AESGCM256.00.AAAA", "too short"),
        ("XGR1.AESGCM256.00." + "A" * 64, "not the hash of its body"),
    ],
)
def test_what_is_no_envelope_is_refused_with_the_reason(text: str, words: str) -> None:
    with pytest.raises(DecryptionFailed, match=words):
        envelope(text)


def settings(place: Path, **keys: Any) -> Settings:
    file = place / "keys.json"
    file.write_text(json.dumps(keys))
    return Settings(rule_keys_file=str(file))


def ran(rule: Any, given: Settings) -> dict[str, Any]:
    async def whole() -> dict[str, Any]:
        async with anabranch.Engine(":memory:", settings=given) as engine:
            run = await engine.start(ONE, {"n": 2}, rules={"A": rule}, allow_extra_input=True)
            await engine.wait(run)
            return engine.sessions.receipts(run)[0]

    import asyncio

    return asyncio.run(whole())


def test_a_step_runs_an_encrypted_rule_when_its_key_is_there(tmp_path: Path) -> None:
    text = seal(json.dumps(RULE).encode(), KEY)
    rid = envelope(text).rid
    found = ran(text, settings(tmp_path, keys={f"0x{rid}": KEY.hex()}))
    assert found["extras"]["valid"] is True
    assert found["payload"] is None, "of an encrypted rule nothing is said in clear"
    for keys, error in (
        ({"keys": {}}, "decryption_failed"),
        ({"keys": {rid: OTHER.hex()}}, "decryption_failed"),
    ):
        assert ran(text, settings(tmp_path, **keys))["error_class"] == error
    assert ran(text, Settings())["error_class"] == "encrypted_rule"


def test_logs_are_sealed_with_the_key_for_logs(tmp_path: Path) -> None:
    rule = {**RULE, "onValid": {"payload": {"m": "[n] * 2"}, "encryptLogs": True}}
    found = ran(rule, settings(tmp_path, logs=KEY.hex()))
    assert found["payload"] is None
    sealed = found["extras"]["engineEncrypted"]
    assert json.loads(open_sealed(sealed, KEY))["payload"] == {"m": 4}
    assert "engineEncrypted" not in ran(rule, settings(tmp_path, keys={}))["extras"]


@pytest.mark.parametrize(
    "content", ["[]", "{", '{"keys": []}', '{"keys": {"a": "12"}}', '{"logs": 5}', '{"more": 1}']
)
def test_a_file_of_keys_that_cannot_be_read_is_told_at_once(tmp_path: Path, content: str) -> None:
    file = tmp_path / "keys.json"
    file.write_text(content)
    with pytest.raises(InputError, match="rule_keys_file"):
        keys_in(str(file))
