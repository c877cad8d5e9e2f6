"""Secrets are used on the worker and seen nowhere: not in answers, messages, logs or the store."""

from __future__ import annotations

import base64
import io
import logging
import pickle
import threading
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from aiohttp import web

from anabranch.kernel.tracker import ItemFailure, ShardReport
from anabranch.kernel.values import Answer, ContextPatch, Fault
from anabranch.net.program import Program
from anabranch.runtime.jobs.executor import carry_out
from anabranch.work.kind_options import ProcessOptions
from anabranch.work.kinds.artifact import Artifact
from anabranch.work.kinds.commands.shell import Shell
from anabranch.work.kinds.http.performer import Http
from anabranch.work.kinds.python.performer import Python
from anabranch.work.kinds.secrets import SecretsPerformer
from anabranch.work.pipeline.pipeline import Pipeline, Services
from anabranch.work.port import Parked, Performer, Task
from anabranch.work.registry import close_all
from anabranch.work.secrets.forms import gate_of, traces_of
from anabranch.work.secrets.keychain import Keychain
from anabranch.work.secrets.redaction import Keyring, RedactingFilter, Redactor, Secret
from anabranch.work.secrets.values import given_to_work
from anabranch.work.values.payloads import MemoryPayloads
from work.pipeline.pipelines import JINJA, job, rule, spec

from ..support import fault_of, perform, run, server, task

CANARY = 'c4nary/"key"+ü 7f3a'


def redactor(*values: str) -> Redactor:
    made = Redactor()
    for value in values:
        made.learn(Secret(value))
    return made


# -- the wrapper -----------------------------------------------------------------------------


def test_a_secret_shows_itself_only_when_asked() -> None:
    secret = Secret(CANARY)
    assert secret.reveal() == CANARY
    shown = f"{secret} {secret!r} {secret:>20} {[secret]} {{'a': secret}}"
    assert CANARY not in shown + str({"a": secret})
    with pytest.raises(TypeError):
        msgspec.json.encode({"a": secret})
    with pytest.raises(TypeError):
        pickle.dumps(secret)
    assert secret == Secret(CANARY)
    assert len({secret, Secret(CANARY)}) == 1


def test_a_keyring_reveals_what_is_looked_up() -> None:
    ring = Keyring({"api": {"token": Secret(CANARY), "type": "bearer"}, "pw": Secret("hidden")})
    assert (ring["api"]["token"], ring["api"]["type"], ring["pw"]) == (CANARY, "bearer", "hidden")
    assert repr(ring) == "<keyring of api, pw>"
    assert CANARY not in repr(ring["api"])
    text = JINJA.rendered("Bearer {{ keychain.api.token }}").evaluate({"keychain": ring})
    assert text == f"Bearer {CANARY}"
    whole = JINJA.value("{{ keychain.api }}").evaluate({"keychain": ring})
    assert whole == {"token": CANARY, "type": "bearer"}


# -- the redactor ----------------------------------------------------------------------------


def test_every_way_to_write_a_secret_is_known() -> None:
    clean = redactor(CANARY)
    written = [
        CANARY,
        quote(CANARY),
        quote(CANARY, safe=""),
        msgspec.json.encode(CANARY).decode(),
        *(base64.b64encode(f"{'u' * n}:{CANARY}:tail".encode()).decode() for n in range(3)),
        *(base64.urlsafe_b64encode(f"{'u' * n}:{CANARY}".encode()).decode() for n in range(3)),
    ]
    for form in written:
        for value in (form, [form], {"a": {form: 1}}, f"before {form} after"):
            shown = msgspec.json.encode(clean.clean(value)).decode()
            assert "***" in shown, value
            for trace in ("c4nary", "7f3a", "YzRuYXJ5", "RuYXJ5", "M0bmFyeS"):
                assert trace not in shown, (value, shown)


def test_values_without_secrets_come_back_as_they_are() -> None:
    value = {"rows": [{"id": n, "name": f"row {n}"} for n in range(100)]}
    assert redactor(CANARY).clean(value) is value
    assert Redactor().clean(value) is value
    answer = Answer(status="ok", result=value)
    assert redactor(CANARY).answer(answer).result is value


def test_only_the_part_that_is_secret_goes() -> None:
    clean = redactor("tok-12345", "tok-12345-longer", "55555")
    assert clean.text("a tok-12345-longer b tok-12345 c") == "a *** b *** c"
    assert clean.clean({"n": 55555, "m": 5, "x": None, "t": (1, True)}) == {
        "n": "***",
        "m": 5,
        "x": None,
        "t": [1, True],
    }
    assert redactor("abc").clean("abc") == "abc"  # too short to be told from ordinary text
    assert clean.clean({"odd": object, "a": "tok-12345"})["a"] == "***"


def test_the_oldest_of_very_many_secrets_are_forgotten() -> None:
    clean = redactor("kept-in-use")
    for number in range(1000):
        clean.learn(Secret(f"token-number-{number:04}"))
        clean.learn(Secret("kept-in-use"))
    assert (
        clean.text("kept-in-use token-number-0999 token-number-0000") == "*** *** token-number-0000"
    )


def test_all_parts_of_an_answer_are_cleaned() -> None:
    details = {"headers": {"authorization": f"Bearer {CANARY}"}}
    fault = Fault("auth", f"no {CANARY}", f"E_{CANARY}", False, details)
    answer = Answer(
        status="error",
        outcome="error",
        fault=fault,
        result=[CANARY],
        patches=(ContextPatch("k", {"x": CANARY}, "merge"),),
    )
    cleaned = redactor(CANARY).answer(answer)
    assert "c4nary" not in repr(cleaned)
    assert cleaned.fault is not None
    assert (cleaned.fault.kind, cleaned.fault.retryable) == ("auth", False)
    assert cleaned.patches == (ContextPatch("k", {"x": "***"}, "merge"),)


def test_what_a_shard_reports_is_cleaned_too() -> None:
    failure = ItemFailure(3, f"key {CANARY}", "auth", f"no {CANARY}")
    report = ShardReport(2, (failure,), 5, {"all": [CANARY]})
    cleaned = redactor(CANARY).answer(Answer(status="ok", shard=report))
    assert cleaned.shard == ShardReport(
        2, (ItemFailure(3, "key ***", "auth", "no ***"),), 5, {"all": ["***"]}
    )


def test_cleaning_is_cheap_where_there_is_nothing_to_clean() -> None:
    clean = redactor(*(f"secret-number-{n}" for n in range(20)))
    value = {"rows": [{"id": n, "name": f"row {n}", "note": "x" * 80} for n in range(10_000)]}
    assert clean.clean(value) is value
    for secret in ("secret-number-1", CANARY, "x" * 3000):  # so many passes over it, at most
        always = [probe for probe in traces_of(secret).probes if not gate_of(probe)]
        assert len(always) <= 24, always


@pytest.mark.parametrize(("size", "aside"), [(100, False), (1_000_000, True)])
def test_a_large_answer_is_cleaned_beside_the_loop(
    size: int, aside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = []
    clean = Redactor.answer

    def answer(self: Redactor, answer: Answer) -> Answer:
        threads.append(threading.current_thread())
        return clean(self, answer)

    monkeypatch.setattr(Redactor, "answer", answer)

    class Says:
        async def perform(self, _task: Task) -> Answer:
            given_to_work().learn(Secret(CANARY))
            return Answer(status="ok", result={"a": CANARY + "\\" * size})

        async def close(self) -> None: ...

    said = run(carry_out(Says(), task("says")))
    assert isinstance(said, Answer)
    assert said.result["a"].startswith("***")
    assert (threads[0] is not threading.main_thread()) is aside


def test_log_lines_are_cleaned() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.addFilter(RedactingFilter(redactor(CANARY)))
    logger = logging.getLogger("anabranch.test.secrets")
    logger.addHandler(handler)
    logger.propagate = False
    try:
        logger.warning("token %s and %d", CANARY, 3)
        try:
            raise ValueError(CANARY)
        except ValueError:
            logger.exception("it failed")
    finally:
        logger.removeHandler(handler)
    assert "token *** and 3" in stream.getvalue()
    assert "ValueError: ***" in stream.getvalue()
    assert "c4nary" not in stream.getvalue()


# -- the kind secrets ------------------------------------------------------------------------


def secrets(**inputs: Any) -> Answer:
    work = SecretsPerformer(Redactor(), {"API_KEY": "from the environment"})
    return run(work.perform(task("secrets", **inputs)))


def test_secrets_come_from_three_places(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("from a file\n")
    assert secrets(name="API_KEY").result == "from the environment"
    assert secrets(provider="env", secret_name="API_KEY").result == "from the environment"
    assert secrets(provider="file", root=str(tmp_path), name="key").result == "from a file"
    assert secrets(provider="file", path=str(tmp_path / "key")).result == "from a file"
    assert secrets(provider="static", value="given").result == "given"


@pytest.mark.parametrize(
    ("inputs", "kind", "words"),
    [
        ({}, "config", "needs name"),
        ({"name": "NOPE"}, "not_found", "no secret 'NOPE'"),
        ({"provider": "file", "name": "nowhere"}, "not_found", "no secret 'nowhere'"),
        ({"provider": "vault", "name": "x"}, "config", "provider 'vault' cannot be reached"),
        ({"provider": "file", "path": "/"}, "config", "/ is not a file but a directory"),
    ],
)
def test_secrets_that_are_not_there(inputs: dict[str, Any], kind: str, words: str) -> None:
    fault = fault_of(secrets(**inputs))
    assert (fault.kind, fault.retryable) == (kind, False)
    assert words in fault.message


# -- the canary, through everything ----------------------------------------------------------


async def echoing(request: web.BaseRequest) -> web.Response:
    body = {
        "headers": dict(request.headers),
        "query": dict(request.query),
        "body": await request.text(),
    }
    return web.json_response(body, status=200 if request.path == "/" else 418)


def test_a_canary_leaves_in_no_answer_log_or_payload(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    clean = Redactor()
    caplog.handler.addFilter(RedactingFilter(clean))
    store = MemoryPayloads()
    keychain = Keychain(clean, environment={"CANARY": CANARY})
    entries = [{"name": "api", "kind": "env", "map": {"token": "CANARY"}}]

    async def keyring(_: Task) -> Keyring:
        return await keychain.resolve(entries, lambda entry, _: entry)

    async def scenario() -> list[Answer | Parked]:
        performers: dict[str, Performer] = {
            "python": Python(ProcessOptions(limit=1)),
            "http": Http(),
            "shell": Shell(),
            "secrets": SecretsPerformer(clean, {"KEY": CANARY}),
            "artifact": Artifact(store),
        }
        pipeline = Pipeline(Services(performers=performers, payloads=store, keyring=keyring))
        token = "{{ keychain.api.token }}"
        async with server(echoing) as address:
            basic = {"type": "basic", "username": "u", "password": token}
            programs = [
                [
                    spec(
                        "a",
                        kind="http",
                        inputs={"url": f"{address}/", "auth": basic, "params": {"k": token}},
                    )
                ],
                [
                    spec(
                        "a",
                        kind="http",
                        inputs={"url": f"{address}/no", "method": "POST", "json": {"k": token}},
                    )
                ],
                [
                    spec(
                        "a",
                        kind="python",
                        inputs={
                            "code": "print(k)\nresult = {'got': k, k: 1}",
                            "args": {"k": token},
                        },
                    )
                ],
                [
                    spec(
                        "a",
                        kind="python",
                        inputs={"code": "print(k)\nraise ValueError(k)", "args": {"k": token}},
                    )
                ],
                [spec("a", kind="python", inputs={"code": "print(context)\nreturn context"})],
                [
                    spec(
                        "a",
                        kind="shell",
                        inputs={"command": "echo $K; echo $K >&2; exit 1", "env": {"K": token}},
                    )
                ],
                [
                    spec(
                        "a",
                        rule(None, "continue", set_ctx={"x": "{{ local.prev }}"}),
                        kind="secrets",
                        inputs={"name": "KEY"},
                    )
                ],
                [spec("a", kind="secrets", inputs={"name": "KEY"}, output={"inline_max_bytes": 1})],
                [spec("a", kind="artifact", inputs={"action": "put", "data": {"k": token}})],
                [spec("a", kind="teleport", inputs={"k": token})],
                [spec("a", kind="python", inputs={"code": f"{token}{{{{ 1 / 0 }}}}"})],
            ]
            try:
                return [await carry_out(pipeline, job(Program(tuple(each)))) for each in programs]
            finally:
                await close_all(performers)
                await keychain.close()

    answers = run(scenario())
    assert len(answers) == 11
    for answer in answers:
        assert isinstance(answer, Answer)
        assert "c4nary" not in msgspec.json.encode(answer).decode(), answer
        assert "7f3a" not in repr(answer), answer
    assert answers[0].result["data"]["query"] == {"k": "***"}  # type: ignore[union-attr]
    assert answers[6].patches == (ContextPatch("x", "***"),)  # type: ignore[union-attr]
    assert b"c4nary" not in b"".join(store.contents.values())
    assert "c4nary" not in caplog.text
    assert "printed: ***" in caplog.text


def test_a_later_task_can_use_what_a_secrets_task_fetched() -> None:
    clean = Redactor()

    async def scenario() -> Answer:
        shell = Shell()
        pipeline = Pipeline(
            Services(
                performers={"secrets": SecretsPerformer(clean, {"KEY": CANARY}), "shell": shell},
            )
        )
        command = {
            "command": 'test "$K" = "$WANTED" && echo same',
            "env": {"K": "{{ local.prev }}", "WANTED": CANARY},
        }
        program = Program(
            (
                spec("a", kind="secrets", inputs={"name": "KEY"}),
                spec("b", kind="shell", inputs=command),
            )
        )
        return await perform(pipeline, job(program))

    assert run(scenario()).result["stdout"] == "same\n"
