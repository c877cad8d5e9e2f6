"""Shell and Python steps get what programs need of the engine's environment, and no secret."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import anabranch
from anabranch.settings import Settings

SECRETS = {
    "ANABRANCH_TOKEN": "anb_secret",
    "anabranch_other": "ours in small letters",
    "DATABASE_PASSWORD": "hunter2",
    "HTTPS_PROXY": "http://me:password@proxy.example:3128",
}
HARMLESS = {"LC_TIME": "C", "TZ": "UTC", "http_proxy": "http://proxy.example:3128"}

SHELL = {"kind": "shell", "command": "env"}
PYTHON = {"kind": "python", "code": "import os\nreturn dict(os.environ)"}


@pytest.fixture(autouse=True)
def _full_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**SECRETS, **HARMLESS}.items():
        monkeypatch.setenv(name, value)


def playbook(tool: dict[str, Any], name: str = "apart") -> dict[str, Any]:
    return {
        "apiVersion": "noetl.io/v2",
        "kind": "Playbook",
        "metadata": {"name": name},
        "workflow": [{"step": "start", "tool": tool}],
    }


def result_of(tool: dict[str, Any], **settings: Any) -> Any:
    done = anabranch.run(playbook(tool), settings=Settings(store=":memory:", **settings))
    assert done.status == "completed", done
    return done.steps["start"]["result"]


def environment_of(tool: dict[str, Any], **settings: Any) -> dict[str, str]:
    result = result_of(tool, **settings)
    if tool["kind"] == "python":
        return dict(result)
    lines = result["stdout"].splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


BOTH = pytest.mark.parametrize("tool", [SHELL, PYTHON], ids=["shell", "python"])


@BOTH
def test_inline_work_inherits_no_secret_and_what_programs_need(tool: dict[str, Any]) -> None:
    seen = environment_of(tool)
    assert not SECRETS.keys() & seen.keys()
    assert not [value for value in SECRETS.values() if value in json.dumps(seen)]
    assert {name: seen.get(name) for name in HARMLESS} == HARMLESS
    assert seen["PATH"] == os.environ["PATH"]


@BOTH
def test_the_operator_names_more_variables_by_pattern(
    tool: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("APP_REGION", "north")
    monkeypatch.setenv("APP_MODE", "test")
    seen = environment_of(tool, inline_environment="APP_*, DATABASE_PASSWORD")
    assert (seen["APP_REGION"], seen["APP_MODE"]) == ("north", "test")
    assert seen["DATABASE_PASSWORD"] == "hunter2"
    assert "HTTPS_PROXY" not in seen


@BOTH
def test_even_a_star_leaves_out_what_is_ours(
    tool: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHAIN_KEY", "0x01")
    given = {"inline_environment": "* ANABRANCH_TOKEN", "chain_signer_key_env": "CHAIN_KEY"}
    seen = environment_of(tool, **given)
    assert seen["DATABASE_PASSWORD"] == "hunter2"
    assert not {"ANABRANCH_TOKEN", "anabranch_other", "CHAIN_KEY"} & seen.keys()


def test_what_the_task_gives_is_there() -> None:
    tool = {**SHELL, "env": {"DATABASE_PASSWORD": "given", "MORE": 1}}
    seen = environment_of(tool)
    assert (seen["DATABASE_PASSWORD"], seen["MORE"]) == ("given", "1")


@pytest.mark.parametrize(
    "tool",
    [
        {"kind": "shell", "command": "set -u; echo $DATABASE_PASSWORD"},
        {"kind": "python", "code": "import os\nreturn os.environ['DATABASE_PASSWORD']"},
    ],
    ids=["shell", "python"],
)
def test_a_step_that_misses_a_variable_is_told_how_to_get_it(tool: dict[str, Any]) -> None:
    done = anabranch.run(playbook(tool), settings=Settings(store=":memory:"))
    assert done.status == "failed"
    told = json.dumps(done.problem)
    assert "inline_environment" in told
    assert "DATABASE_PASSWORD" in told
    assert "hunter2" not in told


OURS = pytest.mark.parametrize("name", ["ANABRANCH_TOKEN", "anabranch_other", "CHAIN_KEY"])
OF_THE_WALLET = Settings(store=":memory:", chain_signer_key_env="CHAIN_KEY")


@pytest.mark.parametrize(
    ("entry", "field"),
    [
        ({"kind": "env", "variable": "NAME"}, ""),
        ({"kind": "env", "map": {"one": "NAME"}}, ".one"),
        ({"kind": "secret_manager", "provider": "env", "map": {"one": "NAME"}}, ".one"),
        ({"kind": "bearer", "token": "{{ env.NAME }}"}, ".token"),
        ({"kind": "bearer", "token": "{{ env | string }}"}, ".token"),
    ],
    ids=["by name", "by names", "by a provider", "by template", "all of them"],
)
@OURS
def test_no_keychain_entry_reads_what_is_ours(
    name: str,
    entry: dict[str, Any],
    field: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CHAIN_KEY", "key-of-the-wallet")
    seen = tmp_path / "seen"
    env = {"WORD": f"{{{{ keychain.db{field} }}}}"}
    book = playbook({"kind": "shell", "command": f'echo "$WORD" > {seen}', "env": env})
    entry = json.loads(json.dumps(entry).replace("NAME", name))
    book["keychain"] = [{"name": "db", **entry}]
    anabranch.run(book, settings=OF_THE_WALLET)
    assert not seen.exists() or os.environ[name] not in seen.read_text()


@OURS
def test_a_secrets_task_reads_nothing_of_ours(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHAIN_KEY", "key-of-the-wallet")
    tool = {"kind": "secrets", "name": name}
    done = anabranch.run(playbook(tool), settings=OF_THE_WALLET)
    assert done.status == "failed"
    assert "belongs to Anabranch itself" in json.dumps(done.problem)


def test_no_credential_of_the_environment_is_what_is_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CRED_WALLET", "key-of-the-wallet")
    settings = Settings(
        store=":memory:", credential_env_prefix="CRED_", chain_signer_key_env="CRED_WALLET"
    )
    tool = {"kind": "secrets", "provider": "store", "name": "wallet"}
    done = anabranch.run(playbook(tool), settings=settings)
    assert "there is no credential 'wallet'" in json.dumps(done.problem)


def test_a_keychain_entry_still_reads_the_whole_environment() -> None:
    tool = {"kind": "shell", "command": "echo $WORD | wc -c", "env": {"WORD": "{{ keychain.db }}"}}
    book = playbook(tool)
    book["keychain"] = [{"name": "db", "kind": "env", "variable": "DATABASE_PASSWORD"}]
    done = anabranch.run(book, settings=Settings(store=":memory:"))
    assert done.status == "completed", done
    assert done.steps["start"]["result"]["stdout"].strip() == str(len("hunter2\n"))
