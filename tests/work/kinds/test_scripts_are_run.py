"""A script task runs a program from a file, an address or inline, and says how it ended."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from anabranch.kernel.values import Answer, Fault
from anabranch.work.kind_options import CommandOptions, HttpOptions
from anabranch.work.kinds.commands.isolation import Isolation
from anabranch.work.kinds.commands.script import ScriptPerformer
from anabranch.work.kinds.http.performer import Http
from anabranch.work.kinds.python.performer import Python
from anabranch.work.kinds.script_sources import ScriptSources
from anabranch.work.network.addresses import read_policy
from anabranch.work.port import Performer
from anabranch.work.secrets.redaction import Redactor, giving
from anabranch.work.sql.sqlite import Sqlite
from hangs import PATIENCE

from ..support import fault_of, gone, perform, run, server, task


def script(**inputs: Any) -> Answer:
    return run(ScriptPerformer().perform(task("script", **inputs)))


def refused(**inputs: Any) -> Fault:
    return fault_of(script(**inputs))


def inline(code: str) -> dict[str, Any]:
    return {"source": {"type": "inline", "code": code}}


def test_a_file_runs_where_it_is_and_reads_its_arguments_as_json(tmp_path: Path) -> None:
    path = tmp_path / "greet.py"
    path.write_text("import json, sys\nprint(__file__, json.loads(sys.argv[1])['name'])\n")
    answer = script(script={"uri": str(path), "source": {"type": "file"}}, args={"name": "Ada"})
    assert answer.result == {
        "status": "completed",
        "exit_code": 0,
        "stdout": f"{path} Ada\n",
        "stderr": "",
        "output": f"{path} Ada\n",
    }


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("job.sh", "echo ${0##*/}", "job.sh"),
        ("job", "#!/bin/sh -u\necho of its first line", "of its first line"),
        ("job.sh", "#!/usr/bin/env python3\nprint(1 + 1)", "2"),
        ("job", "print(3)", "3"),
    ],
)
def test_who_interprets_it_is_said_by_its_first_line_or_its_name(
    tmp_path: Path, name: str, text: str, said: str
) -> None:
    (tmp_path / name).write_text(text)
    assert script(script=str(tmp_path / name)).result["output"].strip() == said


def test_the_interpreter_can_be_given() -> None:
    answer = script(script=inline("echo $0 is a shell"), interpreter=["/bin/sh", "-e"])
    assert answer.result["output"].endswith(" is a shell\n")


def test_an_inline_script_leaves_no_file_behind() -> None:
    path = Path(script(script=inline("print(__file__)")).result["output"].strip())
    assert not path.exists()
    assert not path.parent.exists()


def test_variables_come_from_env_and_from_the_job() -> None:
    code = "import os\nprint(os.environ['A'], os.environ['B'], os.environ['ANABRANCH_KEY'])"
    answer = script(script=inline(code), job={"env": {"A": 1, "B": 2}}, env={"B": 3})
    assert answer.result["output"] == "1 3 run-1/job-1\n"


def test_a_failure_has_the_kind_of_its_exit_status() -> None:
    fault = refused(script=inline("import sys\nsys.exit('no rows')"))
    assert (fault.kind, fault.code, fault.retryable) == ("script", "EXIT_1", True)
    assert fault.message == "the script ended with exit status 1: no rows"
    assert refused(script=inline("import sys\nsys.exit(65)")).kind == "schema"


def test_a_script_that_is_out_of_time_is_gone(tmp_path: Path) -> None:
    code = "import os, time\nopen('new', 'w').write(str(os.getpid()))\nos.rename('new', 'pid')\n"
    code += "time.sleep(600)"
    for limit in PATIENCE:
        fault = refused(script=inline(code), cwd=str(tmp_path), job={"timeout": limit})
        assert (fault.kind, fault.code) == ("timeout", "TIMEOUT")
        if (tmp_path / "pid").exists():
            break
    assert gone(int((tmp_path / "pid").read_text()))


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({}, "needs script"),
        ({"script": "/no/such/script.py"}, "/no/such/script.py"),
        ({"script": {"uri": "x", "source": {"type": "ftp"}}}, "use file, http, gcs, s3 or inline"),
        ({"script": {"uri": "http://x/", "source": {"type": "http"}}}, "use file or inline"),
        ({"script": inline("#!\n")}, "names no interpreter"),
        ({"script": inline("1"), "interpreter": "/no/such/program"}, "could not be started"),
        ({"script": inline("1"), "args": {"a": "x" * 200_000}}, "100,000 bytes"),
        ({"script": inline("1"), "cwd": "/no/such/folder"}, "no folder"),
    ],
)
def test_what_cannot_be_run_says_why(inputs: dict[str, Any], said: str) -> None:
    fault = refused(**inputs)
    assert (fault.kind, fault.retryable) == ("config", False)
    assert said in fault.message


def test_a_secret_is_not_put_on_a_command_line_that_others_can_read() -> None:
    scope = Redactor.of_job()
    scope.learn("hunter2-hunter2")
    with giving(scope):
        fault = refused(script=inline("1"), args={"password": "hunter2-hunter2"})
    assert "give it in env" in fault.message
    assert "hunter2" not in fault.message


# -- over HTTP -------------------------------------------------------------------------------


def over_http(
    work: Callable[[str, ScriptSources], Awaitable[Any]], options: HttpOptions | None = None
) -> Any:
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        if request.path == "/away":
            return web.Response(status=503)
        if request.path == "/secret" and request.headers.get("Authorization") != "Bearer word":
            return web.Response(status=403)
        if request.path == "/load.sql":
            return web.Response(text="select 7 as n")
        if request.path == "/data":
            return web.json_response({"no": "script"})
        return web.Response(text="result = 6\nprint(result)\n")

    async def scenario() -> Any:
        http = Http(options)
        try:
            async with server(answer) as address:
                return await work(address, ScriptSources(http))
        finally:
            await http.close()

    return run(scenario())


def fetched(path: str, performer: Callable[[ScriptSources], Performer], **source: Any) -> Answer:
    async def work(address: str, scripts: ScriptSources) -> Answer:
        made = performer(scripts)
        place = {"uri": f"{address}{path}", "source": {"type": "http", **source}}
        try:
            return await perform(made, task(script=place, database=":memory:"))
        finally:
            close = getattr(made, "close", None)
            if close is not None:
                await close()

    answer: Answer = over_http(work)
    return answer


def script_with(scripts: ScriptSources) -> Performer:
    return ScriptPerformer(None, scripts)


def test_scripts_python_and_sql_can_be_fetched_over_http() -> None:
    assert fetched("/load.py", script_with).result["output"] == "6\n"
    assert fetched("/load.py", lambda scripts: Python(None, scripts)).result == 6
    rows = fetched("/load.sql", lambda scripts: Sqlite(None, scripts)).result["rows"]
    assert rows == [{"n": 7}]


def below_an_endpoint(uri: str, path: str = "") -> Answer:
    async def work(address: str, scripts: ScriptSources) -> Answer:
        auth = {"type": "bearer", "token": "word"}
        source = {"type": "http", "endpoint": address + path, "auth": auth}
        return await ScriptPerformer(None, scripts).perform(
            task(script={"uri": uri, "source": source})
        )

    answer: Answer = over_http(work)
    return answer


def test_the_address_may_be_an_endpoint_with_a_path_and_a_credential() -> None:
    assert below_an_endpoint("secret").result["output"] == "6\n"


def test_nothing_above_an_endpoint_is_fetched() -> None:
    fault = fault_of(below_an_endpoint("%2e./secret?a=b", "/public"))
    assert "leads out of script.source.endpoint" in fault.message


def test_a_script_that_cannot_be_fetched_fails_as_the_call_did() -> None:
    away = fault_of(fetched("/away", script_with))
    assert (away.kind, away.code, away.retryable) == ("server_error", "HTTP_503", True)
    assert fault_of(fetched("/secret", script_with)).kind == "auth"
    assert "a script is text" in fault_of(fetched("/data", script_with)).message


def test_scripts_reach_the_addresses_that_calls_may_reach() -> None:
    async def work(address: str, scripts: ScriptSources) -> Answer:
        return await ScriptPerformer(None, scripts).perform(task(script=f"{address}/load.py"))

    fault = fault_of(over_http(work, HttpOptions(addresses=read_policy("public"))))
    assert (fault.kind, fault.code) == ("config", "ADDRESS_REFUSED")


def test_the_environment_of_the_engine_is_not_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB_PASSWORD", "of the engine")
    code = "import os\nprint(os.environ.get('DB_PASSWORD'))"
    performer = ScriptPerformer(CommandOptions(isolation=Isolation()))
    answer = run(performer.perform(task(script=inline(code))))
    assert answer.result["output"] == "None\n"
