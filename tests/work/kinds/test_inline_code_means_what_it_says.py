"""The three styles of inline Python, its names, its errors: the same in any process."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest

from anabranch.errors import InputError
from anabranch.work.kinds.python.performer import code_of, run_inline

from ..support import fault_of, run

STYLES = {
    "result": "result = a + b",
    "main": "def main(a, b):\n    return a + b",
    "async main": "async def main(a, b):\n    return a + b",
    "return": "total = a + b\nreturn total",
    "early return": "if a < b:\n    return a + b\nresult = 'late'",
    "no early return": "if a > b:\n    return 'early'\nresult = a + b",
    "input_data": "result = input_data['a'] + args['b']",
    "main of input_data": "def main(input_data):\n    return input_data['a'] + input_data['b']",
    "main with the rest": "def main(a, **rest):\n    return a + rest['b']",
    "main by position": "def main(a, /, b, c=0):\n    return a + b + c",
    "called by hand": "def main(a, b):\n    return a + b\nresult = main(a, b)",
    "class": "class Sum:\n    def __call__(self, a, b):\n        return a + b\nmain = Sum()",
}


@pytest.mark.parametrize("style", STYLES)
def test_every_style_gives_its_value(style: str) -> None:
    answer = run_inline(STYLES[style], {"a": 1, "b": 2})
    assert answer.status == "ok", answer.fault
    assert answer.result == 3


def test_nothing_said_is_null() -> None:
    assert run_inline("x = 1").result is None
    assert run_inline("x = 1", {"result": 5}).result is None


def test_code_that_returns_keeps_ordinary_scopes() -> None:
    code = """
from __future__ import annotations
import math
count: int = 0
later: str
def bump():
    global count
    count += 1
    return [n + count for n in range(2)]
for name in ("a", "b"):
    bump()
try:
    1 / 0
except ZeroDivisionError as error:
    text = str(error)
class Box:
    size: int = 3
return [count, bump(), math.floor(2.5), text, Box.size, name]
"""
    assert run_inline(code).result == [2, [3, 4], 2, "division by zero", 3, "b"]


def test_main_is_filled_from_arguments_then_context() -> None:
    context = {"a": "context", "region": "eu", "workload": {"x": 1}}
    code = """
def main(a, region, workload, context):
    return [a, region, workload["x"], len(context)]
"""
    assert run_inline(code, {"a": "args"}, context).result == ["args", "eu", 1, 3]


def test_a_parameter_nobody_fills_is_named() -> None:
    fault = fault_of(run_inline("def main(price): return price", {"a": 1}))
    assert (fault.kind, fault.retryable) == ("config", False)
    assert fault.message == "main() needs 'price'; args and context lack it"


def test_libraries_are_imported_under_their_alias() -> None:
    libs = {"m": "math", "p": "os.path", "dt": {"from": "datetime", "import": "date"}}
    code = "result = [m.floor(2.5), p.basename('/a/b'), dt(2026, 1, 2).isoformat()]"
    assert run_inline(code, libs=libs).result == [2, "b", "2026-01-02"]


@pytest.mark.parametrize(
    ("lib", "words"),
    [
        ("no_such_module", "No module named"),
        (3, "must be a module name"),
        ({"from": "os", "import": "zz"}, "zz"),
    ],
)
def test_a_library_that_is_not_there_is_named(lib: Any, words: str) -> None:
    fault = fault_of(run_inline("result = 1", libs={"x": lib}))
    assert fault.kind == "config"
    assert fault.message.startswith("libs.x")
    assert words in fault.message


def test_an_exception_shows_only_the_lines_of_the_user() -> None:
    code = "import json\n\ndef load(text):\n    return json.loads(text)\n\nresult = load('{')"
    fault = fault_of(run_inline(code, name="parse_order"))
    assert (fault.kind, fault.retryable) == ("schema", False)
    assert fault.message.startswith("JSONDecodeError: Expecting property name")
    assert fault.details["exception_type"] == "JSONDecodeError"
    assert fault.details["line"] == 4
    assert fault.details["traceback"].splitlines()[:4] == [
        '  File "parse_order", line 6, in <module>',
        "    result = load('{')",
        '  File "parse_order", line 4, in load',
        "    return json.loads(text)",
    ]
    assert "inline.py" not in fault.details["traceback"]


def test_line_numbers_survive_a_top_level_return() -> None:
    fault = fault_of(run_inline("x = 0\nif x:\n    return 1\nreturn 1 / x"))
    assert fault.details["line"] == 4
    assert "line 4, in <module>\n    return 1 / x" in fault.details["traceback"]


@pytest.mark.parametrize(
    "code", ["def f(:\n  pass", "return 1 +", "result = 1\n  x = 2", "await f()"]
)
def test_code_that_is_no_python_is_refused_for_good(code: str) -> None:
    fault = fault_of(run_inline(code, name="calc"))
    assert (fault.kind, fault.retryable) == ("python", False)
    assert "SyntaxError" in fault.message or "IndentationError" in fault.message
    assert "calc" in fault.message


def test_endless_recursion_and_endless_text_stay_readable() -> None:
    fault = fault_of(run_inline("def f(n):\n    return f(n + 1)\nresult = f(0)"))
    assert fault.message.startswith("RecursionError")
    assert "more frames" in fault.details["traceback"]
    fault = fault_of(run_inline("raise ValueError('x' * 10**6 + '\\ud800')"))
    assert len(fault.message) < 5_000
    assert "1,000," in fault.message


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import sys\nsys.exit(3)", "sys.exit(3)"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("raise SystemExit", "sys.exit(None)"),
    ],
)
def test_leaving_is_a_failure(code: str, words: str) -> None:
    assert words in fault_of(run_inline(code)).message


def test_a_result_that_is_not_json_is_refused() -> None:
    fault = fault_of(run_inline("result = {'seen': (n for n in [1])}"))
    assert (fault.kind, fault.retryable) == ("result", False)
    assert fault.message.startswith("the result is not JSON: result.seen is a generator")
    assert run_inline("result = {'pair': (1, 2)}").result == {"pair": [1, 2]}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"status": "error", "message": "sold out"}, "sold out"),
        ({"status": "error", "error": "sold out"}, "sold out"),
        ({"status": "error", "error": {"message": "sold out"}}, "sold out"),
        ({"status": "error"}, "the code returned status: error"),
    ],
)
def test_returning_status_error_is_an_error(value: Any, message: str) -> None:
    fault = fault_of(run_inline(f"return {value!r}"))
    assert (fault.kind, fault.message) == ("tool_error", message)
    assert fault.details["result"] == value


def test_what_was_printed_goes_with_a_failure_only(capsys: pytest.CaptureFixture[str]) -> None:
    assert fault_of(run_inline("print('so far')\n1/0")).details["output"] == "so far\n"
    assert run_inline("print('quiet')\nresult = 1").result == 1
    assert capsys.readouterr().out == ""


def test_async_main_runs_inside_a_running_loop_too() -> None:
    async def scenario() -> Any:
        await asyncio.sleep(0)
        return run_inline(STYLES["async main"], {"a": 1, "b": 2}).result

    assert run(scenario()) == 3


def test_dataclasses_work_in_inline_code() -> None:
    code = """
from __future__ import annotations
from dataclasses import asdict, dataclass
@dataclass
class Order:
    sku: str
result = asdict(Order("a"))
"""
    assert run_inline(code).result == {"sku": "a"}


def test_code_is_found_wherever_it_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "calc.py"
    file.write_text("result = 1")
    encoded = base64.b64encode(b"result = 1").decode()
    for given in (
        {"code": "result = 1"},
        {"code_b64": encoded},
        {"script": str(file)},
        {"script": {"uri": f"file://{file}", "source": {"type": "file"}}},
        {"script": {"source": {"type": "inline", "code": "result = 1"}}},
    ):
        assert code_of(given) == "result = 1"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "it has none of them"),
        ({"code": "1", "code_b64": "MQ=="}, "it has code and code_b64"),
        ({"code": 1}, "code must be text"),
        ({"code_b64": "%%%"}, "not base64"),
        ({"script": "/no/such/file.py"}, "cannot be read"),
        ({"script": {"uri": "gs://b/x.py", "source": {"type": "gcs"}}}, "use file or inline"),
        ({"script": {"source": {"type": "inline"}}}, "script.source.code must be text"),
    ],
)
def test_code_that_cannot_be_found_is_explained(given: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        code_of(given)
