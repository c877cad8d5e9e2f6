"""The pages of the reference, each made from the code it is about, so none of them can be stale."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from anabranch.kernel import events
from anabranch.net.problems import CODES
from anabranch.settings import PREFIX, Settings
from anabranch.surfaces.cli.parser import build
from anabranch.surfaces.http.app import ALL_ROUTES
from tools.site.field_comments import field_comments

#: The modules whose names a program may use.
PUBLIC_MODULES = ("anabranch", "anabranch.testing", "anabranch.market")
PARAGRAPH = "\n\n"
USAGE_WIDTH = 96
_MADE = "This page is made from the code of this version."


# -- what every page uses ----------------------------------------------------------------------


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join(f"| {' | '.join(_cell(cell) for cell in row)} |\n" for row in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|") or " "


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _page(title: str, first: str, *parts: str) -> str:
    return "\n".join([f"# {title}\n", f"{first} {_MADE}\n", *parts])


def _doc(thing: Any) -> str:
    """Its own docstring, and not that of a class it is made from."""
    own = vars(thing).get("__doc__") if inspect.isclass(thing) else thing.__doc__
    return inspect.cleandoc(own or "")


# -- the command line --------------------------------------------------------------------------


def command_line() -> str:
    first = (
        "Every verb with its arguments; [the page about the command line](../cli.md) explains them."
    )
    return _page("Command line", first, *_verbs(build(), "anabranch"))


def _verbs(parser: argparse.ArgumentParser, words: str) -> Iterator[str]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            summaries = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name, verb in action.choices.items():
                yield from _verb(verb, f"{words} {name}", summaries.get(name, ""))


def _verb(parser: argparse.ArgumentParser, words: str, summary: str) -> Iterator[str]:
    said = " ".join((parser.description or summary).replace("%(prog)s", words).split())
    yield f"## {words}\n\n{said}\n"
    yield _preformatted(_usage(parser, words))
    if parser.epilog:  # its examples and exit codes
        yield _preformatted(parser.epilog.replace("%(prog)s", words))
    rows = [_argument(parser, each) for each in parser._actions if _is_shown(each)]
    if rows:
        yield table(("argument", "meaning"), rows)
    yield from _verbs(parser, words)


def _preformatted(text: str) -> str:
    return f"```text\n{text.strip()}\n```\n"


def _usage(parser: argparse.ArgumentParser, words: str) -> str:
    """As wide everywhere, whatever terminal the site is built in."""
    formatter = argparse.HelpFormatter(prog=words, width=USAGE_WIDTH)
    formatter.add_usage(parser.usage, parser._actions, parser._mutually_exclusive_groups, prefix="")
    return formatter.format_help()


def _is_shown(action: argparse.Action) -> bool:
    hidden = isinstance(action, argparse._SubParsersAction | argparse._HelpAction)
    return not hidden and action.help != argparse.SUPPRESS


def _argument(parser: argparse.ArgumentParser, action: argparse.Action) -> tuple[str, str]:
    shown = _metavar(action)
    names = [f"{flag} {shown}".strip() for flag in action.option_strings] or [shown]
    formatter = parser._get_formatter()
    meaning = formatter._expand_help(action) if action.help else ""
    return ", ".join(map(_code, names)), meaning


def _metavar(action: argparse.Action) -> str:
    if action.nargs == 0:
        return ""
    if isinstance(action.metavar, tuple):
        return " ".join(action.metavar)
    choices = "{" + ",".join(map(str, action.choices)) + "}" if action.choices else ""
    return action.metavar or choices or action.dest.upper()


# -- settings, events, problems, routes ---------------------------------------------------------


def settings() -> str:
    comments = field_comments(Settings)
    rows = [
        (_code(each.name), _code(PREFIX + each.name.upper()), _default(each), comments[each.name])
        for each in dataclasses.fields(Settings)
    ]
    first = (
        "Every setting with its variable; [the page about settings](../settings.md) explains them."
    )
    return _page("Settings", first, table(("setting", "variable", "default", "meaning"), rows))


def _default(field: dataclasses.Field[Any]) -> str:
    value = field.default
    if field.name == "processes_max":
        return "the number of cores, at least 2"
    return f"{value:,}" if isinstance(value, int | float) else _code(str(value)) or "empty"


def event_kinds() -> str:
    first = "Every kind of event with its fields, in the order in which they are stored; "
    first += "[the page about events](../events.md) says when they happen."
    return _page("Events", first, *map(_event, events.Event.__args__))


def _event(kind: Any) -> str:
    comments = field_comments(kind)
    rows = [
        (_code(field.name), _code(_type_name(field.type)), comments.get(field.name, ""))
        for field in msgspec.structs.fields(kind)
    ]
    parts = [f"## {kind.__struct_config__.tag}\n"]
    parts += [f"{said}\n"] if (said := _doc(kind)) else []
    parts += [table(("field", "type", "meaning"), rows)] if rows else []
    return "\n".join(parts)


def _type_name(kind: Any) -> str:
    text = getattr(kind, "__name__", "") if inspect.isclass(kind) else str(kind)
    for prefix in ("typing.", "collections.abc.", "anabranch.kernel.values.", "anabranch.net.net."):
        text = text.replace(prefix, "")
    return text


def problems() -> str:
    first = "Every code that `anabranch check` can print. Codes are stable."
    rows = [(_code(code), meaning) for code, meaning in CODES.items()]
    return _page("Problem codes", first, table(("code", "meaning"), rows))


def routes() -> str:
    first = "Every route of the server with the scope that its token needs; "
    first += "[the page about HTTP](../http.md) explains them, and `GET /api/v1/openapi.json` has "
    first += "every field."
    rows = [
        (_code(f"{route.method} {route.path}"), route.scope, route.summary) for route in ALL_ROUTES
    ]
    return _page("HTTP routes", first, table(("route", "scope", "what it does"), rows))


# -- Python -------------------------------------------------------------------------------------


def python() -> str:
    first = "Every public name with its signature; [the page about Python](../python.md) has "
    first += "examples."
    return _page("Python", first, *(part for name in PUBLIC_MODULES for part in _module(name)))


def _module(name: str) -> Iterator[str]:
    module = importlib.import_module(name)
    yield f"## {name}\n\n{_doc(module).partition(PARAGRAPH)[0]}\n"
    for each in public_names(module):
        yield from _public(f"{name}.{each}", getattr(module, each))


def public_names(module: Any) -> list[str]:
    return sorted(each for each in module.__all__ if not each.startswith("__"))


def _public(path: str, thing: Any) -> Iterator[str]:
    name = path.rpartition(".")[2]
    if inspect.isclass(thing) or callable(thing):
        yield f"### {path}\n\n```python\n{name}{_signature(thing)}\n```\n\n{_doc(thing)}\n"
    else:
        yield f"### {path}\n\n{_code(_type_name(type(thing)))}\n"
    if inspect.isclass(thing) and not issubclass(thing, BaseException):
        for method in public_methods(thing):
            found = inspect.getattr_static(thing, method)
            yield f"#### {name}.{method}\n\n{_method(method, found)}\n{_doc(found)}\n"


def public_methods(kind: type) -> list[str]:
    """Those that the class defines itself, in the order of its text, but not the tests of a
    suite."""
    kinds = (property, staticmethod, classmethod)
    return [
        name
        for name, found in vars(kind).items()
        if not name.startswith(("_", "test_"))
        and (inspect.isfunction(found) or isinstance(found, kinds))
    ]


def _method(name: str, found: Any) -> str:
    if isinstance(found, property):
        return ""
    return f"```python\n{name}{_signature(getattr(found, '__func__', found))}\n```\n"


def _signature(thing: Any) -> str:
    try:
        return str(inspect.signature(thing)).replace("'", "")
    except (TypeError, ValueError):  # an exception of the language itself, or a type of C
        return ""


PAGES: dict[str, Callable[[], str]] = {
    "command-line.md": command_line,
    "settings.md": settings,
    "events.md": event_kinds,
    "problems.md": problems,
    "routes.md": routes,
    "python.md": python,
}
