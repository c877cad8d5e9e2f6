"""Running a piece of Python text the way playbooks mean it.

Three styles, and the code says by itself which one it is:

    result = a + b                      assign `result`
    def main(a, b): return a + b        define `main`, plain or async
    return a + b                        return at the top level

An executed `return` wins over an assigned `result`, and that over `main`. Arguments are globals,
and together the mapping `input_data` (also called `args`); `context` holds everything templates can
see, of which `ctx` and `workload` are names of their own; `libs` are imported under their aliases,
and a few modules of the standard library are there where they are named. `main` gets its
parameters by name: from the arguments, then from the context; `args`, `input_data` and `context`
are those mappings themselves.

What templates see comes in layers, each value once, and is put together here: the same value stands
in the context under its own name and in its layer.

Only the standard library is used here, and little of it: the Python worker process loads this file
and has to start fast.
"""

from __future__ import annotations

import importlib
import json
import sys
import types
from functools import lru_cache

from anabranch.work.kinds.python.exception_kinds import kind_of
from anabranch.work.kinds.python.json_results import result_json
from anabranch.work.values.json_check import NotJsonError
from anabranch.work.values.texts import clip

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_SENT = 64 * 1024  # characters of a text on the way to the engine, which cuts it to what is kept
_FRAMES_FIRST, _FRAMES_LAST = 3, 20
_BODY = "<module>"  # the name Python itself gives to code at the top level
_NOTHING = object()
#: Modules that code need not import, and layers of the context that are names of their own.
MODULES = ("os", "json", "datetime", "uuid")
LAYERS = ("ctx", "workload")


class InlineJob:
    __slots__ = ("args", "code", "context", "layers", "libs", "name")

    def __init__(
        self,
        code: str,
        name: str,  # shown as the file name in tracebacks
        args: dict[str, Any],
        context: dict[str, Any],  # under their own names
        libs: Any,  # a mapping from aliases, or a list of modules
        layers: dict[str, Any] | None = None,  # what templates see, see `assembled`
    ) -> None:
        self.code = code
        self.name = name
        self.args = args
        self.context = context
        self.libs = libs
        self.layers = layers


class InlineReply:
    """JSON text of the result, or what went wrong as `{kind, message, retryable, details}`."""

    __slots__ = ("error", "result")

    def __init__(self, result: str = "null", error: dict[str, Any] | None = None) -> None:
        self.result = result
        self.error = error


class _MisuseError(Exception):
    """The task, not the code, is wrong; the message says how."""


def execute(job: InlineJob) -> InlineReply:
    """Runs the code and never raises, whatever the code does short of ending the process."""
    try:
        value = _value(job)
        if isinstance(value, dict) and value.get("status") == "error":
            return _reported(value)
        return InlineReply(result_json(value))
    except _MisuseError as error:
        return _error("config", str(error), retryable=False)
    except NotJsonError as error:
        return _error("result", f"the result is not JSON: {error}", retryable=False)
    except SystemExit as error:
        return _raised(error, job, f"the code called sys.exit({error.code!r}); use return instead")
    except SyntaxError as error:
        return _raised(error, job, f"SyntaxError: {error}", retryable=False)
    except BaseException as error:  # KeyboardInterrupt and the like must not end the worker either
        text = str(error)
        name = type(error).__name__
        return _raised(error, job, f"{name}: {text}" if text else name)


def _value(job: InlineJob) -> Any:
    program = _compiled(job.code, job.name)
    module = types.ModuleType("__inline__")
    names = module.__dict__
    job.args = args = {name: _with_body(value) for name, value in job.args.items()}
    if job.layers:
        context = {**assembled(job.layers), **job.context}
        job = InlineJob(job.code, job.name, args, context, job.libs)
    for name in program.modules:
        names[name] = importlib.import_module(name)
    for name in LAYERS if job.context else ():
        if name in job.context:
            names[name] = job.context[name]
    names["input_data"] = names["args"] = args
    names["context"] = job.context
    for name, value in args.items():
        if name[:2] != "__":
            names[name] = value
    if job.libs:
        names.update([(alias, _library(alias, what)) for alias, what in _libraries(job.libs)])
    sys.modules["__inline__"] = module  # dataclasses and pickle look their module up
    try:
        exec(program.code, names)
        if program.has_body:
            names["__nothing__"] = _NOTHING
            returned = names.pop(_BODY)()
            if returned is not _NOTHING:
                return returned
        if names.get("result", _NOTHING) is not args.get("result", _NOTHING):
            return names["result"]
        main = names.get("main")
        return _call_main(main, job) if callable(main) else None
    finally:
        sys.modules.pop("__inline__", None)


def assembled(layers: dict[str, Any]) -> dict[str, Any]:
    """The context: inner layers before outer ones, and each layer under its name."""
    steps, tasks, workload, ctx, args, item = (
        {name: _with_body(value) for name, value in layers.get(layer, {}).items()}
        for layer in ("steps", "tasks", "workload", "ctx", "args", "iter")
    )
    bare = {**steps, **tasks, **workload, **ctx, **args, **item}
    named = {
        "workload": workload,
        "ctx": {**workload, **ctx},
        "args": args,
        "iter": item,
        "vars": {**ctx, **item},
        "steps": steps,
        "results": {**steps, **tasks},
    }
    return {**layers.get("others", {}), **bare, **named, **layers.get("reserved", {})}


class _Response(dict):  # type: ignore[type-arg]
    """An answer of HTTP: its body has two names, of which only `data` is passed on."""

    def __missing__(self, key: str) -> Any:
        if key == "body":
            return self["data"]
        raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        return key == "body" or super().__contains__(key)

    def get(self, key: str, default: Any = None) -> Any:
        try:
            return self[key]
        except KeyError:
            return default


def _with_body(value: Any) -> Any:
    if isinstance(value, list) and value and _is_response(value[0]):
        return [_with_body(one) for one in value]
    return _Response(value) if _is_response(value) else value


def _is_response(value: Any) -> bool:
    return isinstance(value, dict) and "status_code" in value and "data" in value


class _Program:
    __slots__ = ("code", "has_body", "modules")

    def __init__(self, code: types.CodeType, has_body: bool, modules: tuple[str, ...]) -> None:
        self.code = code
        self.has_body = has_body  # its top level became a function because it returns
        self.modules = modules  # that it may use without an import


@lru_cache(maxsize=128)
def _compiled(code: str, name: str) -> _Program:
    modules = tuple([module for module in MODULES if module in code])
    try:
        return _Program(compile(code, name, "exec", dont_inherit=True), False, modules)
    except SyntaxError:
        wrapped = _wrapped(code, name)
        if wrapped is None:
            raise
        return _Program(wrapped, True, modules)


def _wrapped(code: str, name: str) -> types.CodeType | None:
    """Code that returns at the top level, as a function whose variables are still globals."""
    import ast

    tree = ast.parse(code, name)
    if not any(isinstance(node, ast.Return) for node in _top_level(tree)):
        return None
    future = [node for node in tree.body if getattr(node, "module", "") == "__future__"]
    body = [_without_annotation(node) for node in tree.body if node not in future]
    body.append(ast.Return(ast.Name("__nothing__", ast.Load())))
    function = ast.FunctionDef(_BODY, _no_arguments(), body, [])
    tree.body = [*future, function]
    outline = compile(ast.fix_missing_locations(tree), name, "exec", dont_inherit=True)
    inner = next(const for const in outline.co_consts if isinstance(const, types.CodeType))
    if variables := [*inner.co_varnames, *inner.co_cellvars]:
        body.insert(0, ast.Global(variables))
    return compile(ast.fix_missing_locations(tree), name, "exec", dont_inherit=True)


def _top_level(tree: Any) -> Any:
    """All nodes that do not belong to a function or class of their own."""
    import ast

    waiting = list(tree.body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            waiting.extend(ast.iter_child_nodes(node))


def _without_annotation(node: Any) -> Any:
    """Globals cannot be annotated inside a function, so `x: int = 1` becomes `x = 1`."""
    import ast

    class Plain(ast.NodeTransformer):
        def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
            if node.value is None:
                return ast.copy_location(ast.Pass(), node)
            return ast.copy_location(ast.Assign([node.target], node.value), node)

        def _leave(self, node: ast.AST) -> ast.AST:
            return node

        visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = _leave  # noqa: N815

    return Plain().visit(node)


def _no_arguments() -> Any:
    import ast

    return ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])


def _libraries(libs: Any) -> list[tuple[str, Any]]:
    """`{alias: module}`, or `[module, …]`: as `import module` binds it."""
    if isinstance(libs, dict):
        return list(libs.items())
    found: list[tuple[str, Any]] = []
    for each in libs or ():
        if isinstance(each, dict):
            found += each.items()
        elif isinstance(each, str):
            _library(each, each)
            first = each.partition(".")[0]
            found.append((first, first))
        else:
            raise _MisuseError(f"libs must list module names, not {each!r:.60}")
    return found


def _library(alias: str, what: Any) -> Any:
    """`alias: module`, or `alias: {from: module, import: name}`."""
    try:
        if isinstance(what, str):
            return importlib.import_module(what)
        if isinstance(what, dict) and isinstance(what.get("from"), str):
            module = importlib.import_module(what["from"])
            return getattr(module, what["import"]) if "import" in what else module
    except (ImportError, AttributeError) as error:
        raise _MisuseError(f"libs.{alias}: {error}") from None
    raise _MisuseError(
        f"libs.{alias} must be a module name or {{from: …, import: …}}, not {what!r:.60}"
    )


def _call_main(main: Any, job: InlineJob) -> Any:
    import inspect

    given: dict[str, Any] = {}
    in_order: list[Any] = []
    extras = {"input_data": job.args, "args": job.args, "context": job.context}
    parameters = inspect.signature(main).parameters.values()
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        value = _first(parameter.name, job.args, extras, job.context)
        if value is _NOTHING and parameter.default is parameter.empty:
            raise _MisuseError(f"main() needs '{parameter.name}'; args and context lack it")
        if value is not _NOTHING and parameter.kind is parameter.POSITIONAL_ONLY:
            in_order.append(value)
        elif value is not _NOTHING:
            given[parameter.name] = value
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        given = {**job.args, **given}
    returned = main(*in_order, **given)
    return _run_async(returned) if inspect.iscoroutine(returned) else returned


def _first(name: str, *places: dict[str, Any]) -> Any:
    return next((place[name] for place in places if name in place), _NOTHING)


def _run_async(coroutine: Any) -> Any:
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    from concurrent.futures import ThreadPoolExecutor  # inside a loop: that one cannot be nested

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()


def _reported(value: dict[str, Any]) -> InlineReply:
    """Code that returns `{"status": "error", …}` says that it failed."""
    inner = value.get("error")
    nested = inner if isinstance(inner, dict) else {"message": inner}
    message = value.get("message") or nested.get("message") or "the code returned status: error"
    retryable = value.get("retryable", nested.get("retryable"))
    details = {"result": json.loads(result_json(value))}
    return _error("tool_error", str(message), retryable=retryable is not False, details=details)


def _raised(
    error: BaseException, job: InlineJob, message: str, *, retryable: bool = True
) -> InlineReply:
    frames = _frames(error, job)
    details = {
        "exception_type": type(error).__name__,
        "message": clip(str(error), _SENT),
        "traceback": clip("\n".join(frames), _SENT),
        "line": _line(error, job.name),
    }
    kind, may_heal = kind_of(error)
    return _error(kind, message, retryable=retryable and may_heal, details=details)


def _frames(error: BaseException, job: InlineJob) -> list[str]:
    """The user's own frames: nobody is helped by ours, or by those of a library below."""
    source = job.code.splitlines()
    shown = []
    for line, function in _user_lines(error, job.name):
        text = source[line - 1].strip() if 0 < line <= len(source) else ""
        shown.append(f'  File "{job.name}", line {line}, in {function}\n    {text}')
    if len(shown) > _FRAMES_FIRST + _FRAMES_LAST:
        left_out = len(shown) - _FRAMES_FIRST - _FRAMES_LAST
        shown[_FRAMES_FIRST:-_FRAMES_LAST] = [f"  … {left_out} more frames …"]
    return [*shown, f"{type(error).__name__}: {error}"]


def _user_lines(error: BaseException, name: str) -> list[tuple[int, str]]:
    lines = []
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_filename == name:
            lines.append((trace.tb_lineno, code.co_name))
        trace = trace.tb_next
    if isinstance(error, SyntaxError) and error.filename == name:
        lines.append((error.lineno or 0, _BODY))
    return lines


def _line(error: BaseException, name: str) -> int | None:
    lines = _user_lines(error, name)
    return lines[-1][0] if lines else None


def _error(kind: str, message: str, *, retryable: bool, details: Any = None) -> InlineReply:
    known = {
        "kind": kind,
        "message": clip(message, _SENT),
        "retryable": retryable,
        "details": details,
    }
    return InlineReply(error=known)
