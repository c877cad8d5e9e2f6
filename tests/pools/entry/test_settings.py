"""Whose settings hold for work on a cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from anabranch.pools.entry.settings import OF_THE_ENGINE, settings_of_work, settings_to_send
from anabranch.settings import Settings
from anabranch.work.from_settings import for_others


def test_nothing_travels_where_the_defaults_hold() -> None:
    assert settings_to_send(Settings(store="postgresql://u:p@h/d", token="t")) == {}


def test_the_engine_says_what_a_result_may_be() -> None:
    chosen: dict[str, Any] = dict.fromkeys(OF_THE_ENGINE, 1234)
    engine = replace(Settings(), **chosen)
    sent = settings_to_send(engine)
    here = {"ANABRANCH_INLINE_BYTES_MAX": "99", "ANABRANCH_RESULT_BYTES_MAX": "99"}
    found = settings_of_work(sent, here)
    assert all(getattr(found, name) == 1234 for name in OF_THE_ENGINE)
    assert settings_of_work({}, here).inline_bytes_max == Settings().inline_bytes_max


def test_the_machine_says_what_it_does_and_whom_it_trusts() -> None:
    sent = settings_to_send(
        replace(Settings(), processes_max=7, inline_user="root", credential_folder="/engine")
    )
    assert sent == {}
    found = settings_of_work(sent, {"ANABRANCH_CREDENTIAL_FOLDER": "/here"})
    assert found.credential_folder == "/here"
    assert found.inline_user == ""


def test_both_may_switch_kinds_off_and_the_machine_says_where_calls_go() -> None:
    sent = settings_to_send(replace(Settings(), no_inline="shell", http_addresses="public"))
    found = settings_of_work(sent, {"ANABRANCH_NO_INLINE": "python"})
    assert set(found.no_inline.split()) == {"python", "shell"}
    assert found.http_addresses == "public"
    assert settings_of_work(sent, {"ANABRANCH_HTTP_ADDRESSES": "any"}).http_addresses == "any"


def test_the_engine_says_which_files_work_may_name_unless_the_machine_does() -> None:
    sent = settings_to_send(replace(Settings(), files_allowed="/srv/data"))
    assert settings_of_work(sent, {}).files_allowed == "/srv/data"
    assert settings_of_work(sent, {"ANABRANCH_FILES_ALLOWED": "/mnt"}).files_allowed == "/mnt"


def test_the_engine_says_as_whom_work_logs_in_unless_the_machine_does() -> None:
    sent = settings_to_send(for_others(Settings()))
    assert settings_of_work(sent, {}).postgres_identity == "task"
    here = {"ANABRANCH_POSTGRES_IDENTITY": "machine"}
    assert settings_of_work(sent, here).postgres_identity == "machine"
    assert settings_of_work({}, {}).postgres_identity == ""
